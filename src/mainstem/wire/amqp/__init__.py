"""AMQP 0.9.1 on the wire: frames, methods, field tables, content properties."""
