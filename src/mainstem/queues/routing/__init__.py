"""Exchanges, bindings and topology of a virtual host; routing of messages to queues."""
