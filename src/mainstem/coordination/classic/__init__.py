"""The classic consumer group protocol: join, sync, heartbeat, rebalance and generations."""
