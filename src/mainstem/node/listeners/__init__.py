"""Builds the listeners of a node, one module per protocol."""
