"""The Python client: producer, consumer and administration over the Kafka protocol."""
