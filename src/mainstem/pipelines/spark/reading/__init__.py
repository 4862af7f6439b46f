"""Topics as Spark tables and streams: options, offsets and readers."""
