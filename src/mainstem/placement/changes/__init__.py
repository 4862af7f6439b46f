"""Commands to the catalogue, the facts that follow from them, and how commands are decided."""
