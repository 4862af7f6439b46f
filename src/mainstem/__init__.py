"""Mainstem: one log, written and read by every protocol."""

__version__ = "0.1.0"
