"""The state of the catalogue: topics, streams, ranges, nodes, security; look-ups and views."""
