"""The placement driver: the durable truth about nodes, topics, streams and ranges."""
