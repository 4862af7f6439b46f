"""The bodies of HTTP requests and responses, as msgspec types."""
