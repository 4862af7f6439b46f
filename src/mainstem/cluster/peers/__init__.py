"""Connections between nodes: who is at the other end is proved, what is asked is answered."""
