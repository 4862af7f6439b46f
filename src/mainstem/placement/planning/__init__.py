"""Planning by the placement leader: leases, elections, replica placement, balancing."""
