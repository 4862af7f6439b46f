"""Local development: a cluster of processes, the demonstration and development certificates."""
