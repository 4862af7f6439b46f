"""HTTP: topics, messages and groups under /v1, health and metrics, for curl and for tools."""
