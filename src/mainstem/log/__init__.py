"""The log on disk: the only package that writes record bytes to files."""
