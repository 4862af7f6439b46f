"""The composition root: turns configuration into a running node."""
