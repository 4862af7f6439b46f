"""Runs the pipelines of a file: queries, restarts, dead letters, health, metrics, status."""
