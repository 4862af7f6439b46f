"""The queue state machines: ready messages, leases, consumers, settlement, overflow, shards."""
