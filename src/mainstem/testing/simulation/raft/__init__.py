"""A Raft group of real drivers on simulated disks."""
