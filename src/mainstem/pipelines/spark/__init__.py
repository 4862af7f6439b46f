"""Spark: the session with its settings, and topics as ``format("mainstem")``."""
