"""Membership, health and load of nodes: hints that spread from node to node.

Gossip never decides that a node has failed for good; the placement driver's leases do.
"""
