"""Internals of the producer: partitioning, batching, sending and producer ids."""
