"""Queues on the log: who gets which message, and what has been settled."""
