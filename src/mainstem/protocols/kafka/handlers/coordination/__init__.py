"""Requests to coordinators: membership, committed offsets, share groups, transactions."""
