"""Whole nodes under faults in virtual time, with checked guarantees."""
