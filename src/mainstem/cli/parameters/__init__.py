"""Command-line options that several commands share, and parsers of their values."""
