"""The disk of one node of ``simulator``: files in memory, so that a sync has nothing to do.

What a power loss takes away is decided by what was synced (``node``). Faults are met
by all that touches the node's folders: its log's and its catalogue's.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from mainstem.log.disk.file_access import FileAccess
from mainstem.testing.simulation.faulty_files import FaultyFiles, FileFault
from mainstem.testing.simulation.raft.group import FaultyDisk

if TYPE_CHECKING:
    from collections.abc import Callable


class SimDisk(FileAccess):
    """The calls of the log on a disk of a scenario.

    Args:
        files: the file calls of the process that runs the scenario.
        folders: what is on this disk.
        catalogue: the disk as the catalogue's log sees it.
    """

    def __init__(
        self, files: FaultyFiles, folders: tuple[Path, ...], catalogue: FaultyDisk
    ) -> None:
        self._files = files
        self._folders = folders
        self._catalogue = catalogue
        self._has_failed = self._is_doubtful = False
        self.on_failed: Callable[[], None] = lambda: None  # told of the first sync that fails

    def begin(self, fault: FileFault) -> None:
        """From now on something is wrong."""
        for folder in self._folders:
            self._files.begin(folder, fault)
        self._is_doubtful |= fault in (FileFault.SYNCS_FAIL, FileFault.READS_FAIL)
        self._catalogue.broken |= fault is FileFault.SYNCS_FAIL

    def end(self, *faults: FileFault) -> None:
        """These faults are gone, or all."""
        for folder in self._folders:
            self._files.end(folder, *faults)
        self._catalogue.broken = self.has(FileFault.SYNCS_FAIL)

    def process_ended(self) -> tuple[bool, bool]:
        """Only a disk that is full is so for the next process, too.

        Returns:
            Whether the kernel has dropped what it could not write of the log, and of the
            catalogue: what it told of when a sync failed.
        """
        self.end(FileFault.NO_DESCRIPTORS, FileFault.READS_FAIL, FileFault.SYNCS_FAIL)
        lost = self._has_failed, self._catalogue.has_failed
        self._has_failed = self._catalogue.has_failed = self._is_doubtful = False
        return lost

    def has(self, fault: FileFault) -> bool:
        """Whether something is wrong."""
        return self._files.has(self._folders[0], fault)

    @property
    def may_end_process(self) -> bool:
        """Whether a sync or a read has failed, or may have, since the process began."""
        return self._is_doubtful

    def reserve(self, fd: int, start: int, size: int) -> bool:
        """Reserve nothing: there is as much space as the scenario says."""
        del fd, start, size
        return False

    def sync_data(self, fd: int) -> None:
        """Nothing to do, unless it fails."""
        self._check_sync()
        self._files.check_fd(fd, FileFault.SYNCS_FAIL)

    def sync_path(self, path: Path) -> None:
        """Nothing to do, unless it fails."""
        self._files.check(str(path), FileFault.NO_DESCRIPTORS)
        self._check_sync()
        self._files.check(str(path), FileFault.SYNCS_FAIL)

    def sync_file_system(self, fd: int) -> None:
        """Nothing to do, unless it fails."""
        self._check_sync()
        self._files.check_fd(fd, FileFault.SYNCS_FAIL)

    def _check_sync(self) -> None:
        """Remember that a sync is about to fail."""
        if self.has(FileFault.SYNCS_FAIL) and not self._has_failed:
            self._has_failed = True
            self.on_failed()
