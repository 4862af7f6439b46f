"""Producers of a stream: sequence numbers, transactions, markers, checkpoints."""
