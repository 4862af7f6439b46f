"""Pipeline files: YAML to a checked description of what is to run, or every problem at once."""
