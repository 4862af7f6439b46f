"""The connector kit: the shapes of sources and sinks, their registry and what they share."""
