"""Telemetry for operators: metrics, log lines, health."""
