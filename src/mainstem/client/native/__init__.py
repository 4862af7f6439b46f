"""The client for queues over the native protocol: connection, queues, messages and consumers."""
