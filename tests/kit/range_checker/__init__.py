"""An explicit-state model checker for the range replication protocol."""
