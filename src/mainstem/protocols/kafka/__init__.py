"""The Kafka protocol: what unmodified Kafka clients speak."""
