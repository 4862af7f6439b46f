"""Shared by all kinds of groups: coordinator, shard, facts, settings, waiting requests."""
