"""Generated message classes, one module per API so that only what is used is loaded."""
