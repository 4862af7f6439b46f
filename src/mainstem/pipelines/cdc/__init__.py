"""Change data capture: rows of databases as a stream of change events."""
