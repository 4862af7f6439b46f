"""The Kafka protocol as bytes: schema table, message classes, and the codec compiled from them."""
