"""Nodes talking to nodes: Raft for the catalogue, gossip about who is there."""
