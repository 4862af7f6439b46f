"""The implementation of the broker API on one node."""
