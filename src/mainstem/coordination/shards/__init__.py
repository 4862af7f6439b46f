"""Replicated state machines in internal topics: facts, loading, storing, partitioning by key."""
