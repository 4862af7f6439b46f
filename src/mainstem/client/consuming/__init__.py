"""Internals of the consumer: group membership, fetching, offsets and reading ranges as columns."""
