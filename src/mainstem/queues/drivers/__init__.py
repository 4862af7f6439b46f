"""Drivers of all queues of a node: loading, virtual hosts, dead letters and upkeep."""
