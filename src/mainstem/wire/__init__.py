"""Pure codecs shared by servers and clients: Kafka, AMQP, MQTT, native and WebSocket."""
