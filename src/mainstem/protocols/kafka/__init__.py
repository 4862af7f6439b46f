"""The Kafka protocol, for unmodified Kafka clients."""
