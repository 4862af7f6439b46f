"""The consumer group protocol (KIP-848): members, target assignments, heartbeats and migration."""
