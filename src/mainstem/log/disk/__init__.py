"""Access to files and disks: system calls, checksummed files, group commit, free space."""
