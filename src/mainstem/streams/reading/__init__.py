"""The reading side of a stream: local readers, followers, selection of a replica."""
