"""Settings of a node: sections, defaults, and the layers they are read from."""
