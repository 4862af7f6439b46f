"""The writing side of a stream: appends, replication to other nodes, rolls from range to range."""
