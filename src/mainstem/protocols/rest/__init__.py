"""The HTTP API: topics, messages, groups, queues and access control; health and metrics."""
