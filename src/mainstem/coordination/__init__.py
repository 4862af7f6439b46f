"""Replicated state machines kept in internal streams: consumer groups and committed offsets."""
