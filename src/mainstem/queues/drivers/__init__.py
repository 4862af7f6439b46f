"""All queues of a node in service: loading, virtual hosts, dead letters and upkeep."""
