"""One MQTT connection: login, incoming and outgoing packets, acknowledgements, permissions."""
