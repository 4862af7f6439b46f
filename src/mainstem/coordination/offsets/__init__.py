"""Committed offsets of groups, including those that wait for a transaction to end."""
