"""Spark frames into topics, exactly once: options, encoding, tasks, transactions and the ledger."""
