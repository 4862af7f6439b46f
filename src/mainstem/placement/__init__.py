"""The placement driver and the catalogue: nodes, topics, streams and ranges, stored durably."""
