"""Background work on streams: retention, compaction, merging, scrubbing, garbage collection."""
