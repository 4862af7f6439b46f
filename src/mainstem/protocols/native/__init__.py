"""The native protocol: queues, exchanges and topics, in msgpack messages."""
