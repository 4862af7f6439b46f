"""Requests that write, read and locate records: Produce, Fetch, ShareFetch, ListOffsets."""
