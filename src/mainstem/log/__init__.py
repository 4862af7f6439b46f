"""The log room: the only one that writes record bytes to files."""
