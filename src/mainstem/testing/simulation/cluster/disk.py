"""The disk of one node of ``simulator``: files in memory, so that a sync does nothing.

What was synced decides what a power loss removes (``node``). Faults affect all file calls in the
node's folders: those of its log and of its catalogue.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from mainstem.log.disk.file_access import FileAccess
from mainstem.testing.simulation.faulty_files import FaultyFiles, FileFault
from mainstem.testing.simulation.raft.group import FaultyDisk

if TYPE_CHECKING:
    from collections.abc import Callable


class SimDisk(FileAccess):
    """File calls of the log on a simulated disk.

    Args:
        files: the file calls of the process that runs the scenario.
        folders: the folders on this disk.
        catalogue: the disk of the catalogue's log.
    """

    def __init__(
        self, files: FaultyFiles, folders: tuple[Path, ...], catalogue: FaultyDisk
    ) -> None:
        self._files = files
        self._folders = folders
        self._catalogue = catalogue
        self._has_failed = self._is_doubtful = False
        self.on_failed: Callable[[], None] = lambda: None  # called at the first sync that fails

    def begin(self, fault: FileFault) -> None:
        """Start a fault."""
        for folder in self._folders:
            self._files.begin(folder, fault)
        self._is_doubtful |= fault in (FileFault.SYNCS_FAIL, FileFault.READS_FAIL)
        self._catalogue.broken |= fault is FileFault.SYNCS_FAIL

    def end(self, *faults: FileFault) -> None:
        """End these faults, or all."""
        for folder in self._folders:
            self._files.end(folder, *faults)
        self._catalogue.broken = self.has(FileFault.SYNCS_FAIL)

    def process_ended(self) -> tuple[bool, bool]:
        """End all faults except a full disk, which persists for the next process.

        Returns:
            Whether the kernel has dropped data of the log, and of the catalogue, that it could
            not write, after a failed sync.
        """
        self.end(FileFault.NO_DESCRIPTORS, FileFault.READS_FAIL, FileFault.SYNCS_FAIL)
        lost = self._has_failed, self._catalogue.has_failed
        self._has_failed = self._catalogue.has_failed = self._is_doubtful = False
        return lost

    def has(self, fault: FileFault) -> bool:
        """Whether the disk has a fault."""
        return self._files.has(self._folders[0], fault)

    @property
    def may_end_process(self) -> bool:
        """Whether a sync or a read has failed, or may have, since the process started."""
        return self._is_doubtful

    def reserve(self, fd: int, start: int, size: int) -> bool:
        """Reserve nothing: the scenario controls the free space."""
        del fd, start, size
        return False

    def sync_data(self, fd: int) -> None:
        """Fail if the disk has a fault, otherwise do nothing."""
        self._check_sync()
        self._files.check_fd(fd, FileFault.SYNCS_FAIL)

    def sync_path(self, path: Path) -> None:
        """Fail if the disk has a fault, otherwise do nothing."""
        self._files.check(str(path), FileFault.NO_DESCRIPTORS)
        self._check_sync()
        self._files.check(str(path), FileFault.SYNCS_FAIL)

    def sync_file_system(self, fd: int) -> None:
        """Fail if the disk has a fault, otherwise do nothing."""
        self._check_sync()
        self._files.check_fd(fd, FileFault.SYNCS_FAIL)

    def _check_sync(self) -> None:
        """Record that a sync is about to fail."""
        if self.has(FileFault.SYNCS_FAIL) and not self._has_failed:
            self._has_failed = True
            self.on_failed()
