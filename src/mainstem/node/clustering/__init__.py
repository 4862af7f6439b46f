"""A node as a member of a cluster: joining, gossip, catalogue voters, forwarding to other nodes."""
