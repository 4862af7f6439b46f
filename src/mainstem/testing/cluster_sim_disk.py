"""The disk of one node of ``cluster_sim``: files in memory, so that a sync has nothing to do.

What a power loss takes away is decided by what was synced (``cluster_sim_node``).
"""

from pathlib import Path

from mainstem.log.file_access import FileAccess


class SimDisk(FileAccess):
    """The calls of the log on a disk of a story."""

    def reserve(self, fd: int, start: int, size: int) -> bool:
        """Reserve nothing: there is as much room as the story says."""
        del fd, start, size
        return False

    def sync_data(self, fd: int) -> None:
        """Nothing to do."""

    def sync_path(self, path: Path) -> None:
        """Nothing to do."""

    def sync_file_system(self, fd: int) -> None:
        """Nothing to do."""
