"""The writer of a stream: roles, fail-over to a new writer, sealing, recovery."""
