"""The stream: an ordered list of ranges, of which only the last is open, with a single writer."""
