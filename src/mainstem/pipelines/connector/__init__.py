"""The connector kit: interfaces of sources and sinks, their registry and shared code."""
