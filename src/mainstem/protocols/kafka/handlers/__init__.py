"""One module per family of Kafka requests. Each exports ``SERVED``: api key to handler."""
