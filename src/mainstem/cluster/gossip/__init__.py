"""Who is there, how they are, and how busy: hints that travel from node to node.

Nothing here decides that a node is dead for good; the placement driver's leases do.
"""
