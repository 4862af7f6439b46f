"""The durable state of queues, rebuilt from facts: ledgers, shards, their codec; message bodies."""
