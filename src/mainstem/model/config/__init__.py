"""Definitions of settings: of topics, nodes, groups and client metrics, by Kafka's names."""
