"""Pipeline files: parses YAML to a validated model, or reports every problem at once."""
