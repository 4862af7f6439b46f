"""The HTTP request handlers, one module per resource."""
