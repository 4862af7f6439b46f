"""Share groups (KIP-932): members, share partitions, sessions and the state stored for them."""
