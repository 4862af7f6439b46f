"""Simulated shards of groups and transactions, and the scripts that drive them."""
