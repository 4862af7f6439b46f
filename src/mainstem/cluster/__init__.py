"""Communication between nodes: Raft for the catalogue, gossip for membership and load."""
