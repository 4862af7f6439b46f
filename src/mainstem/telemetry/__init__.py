"""What the house tells its operators: metrics, log lines, health."""
