"""Segment files of a range: appending, indexes, reading, scanning."""
