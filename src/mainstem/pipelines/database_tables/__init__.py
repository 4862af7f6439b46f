"""Database tables as sources and sinks: what the PostgreSQL and MySQL connectors share."""
