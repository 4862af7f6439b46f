"""Raft groups under faults: cores alone, and real drivers on simulated disks."""
