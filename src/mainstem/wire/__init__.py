"""Pure codecs shared by servers and clients: Kafka messages."""
