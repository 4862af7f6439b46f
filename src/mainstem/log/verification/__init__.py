"""Verification of stored bytes: single ranges, whole data directories, background scrubbing."""
