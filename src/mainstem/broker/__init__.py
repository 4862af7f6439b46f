"""The broker API: the one set of operations that every protocol is served from."""
