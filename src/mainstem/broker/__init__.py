"""The counter: the one set of verbs every protocol is served from."""
