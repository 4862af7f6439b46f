"""Queues on the log: which consumer gets which message, and which messages are settled."""
