"""One shard of queues in service: its turns, deliveries, subscriptions and settlements."""
