"""The broker API: the protocols (interfaces) that every wire protocol is served from."""
