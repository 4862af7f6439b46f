"""Removal of records: retention, compaction, merging of ranges, deletion of directories."""
