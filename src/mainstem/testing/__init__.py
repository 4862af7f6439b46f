"""Public test kit: a real node in its own process, for tests and benchmarks."""
