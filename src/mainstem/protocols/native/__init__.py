"""The native protocol: queues, exchanges and topics in few words of msgpack."""
