"""Deterministic simulation: virtual time, simulated networks and faulty disks."""
