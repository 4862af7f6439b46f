"""Database tables as sources and sinks: the shared code of the PostgreSQL and MySQL connectors."""
