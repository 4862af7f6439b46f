"""How results are printed: tables, JSON, YAML, formatted records and progress."""
