"""Files of the catalogue: journal, export, node identity, rebuilding after a loss."""
