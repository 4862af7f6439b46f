"""Storage of a Raft node: write-ahead log and snapshots."""
