"""Spark: the session with our settings, and topics as ``format("mainstem")``."""
