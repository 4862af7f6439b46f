"""Records across a restart that a sync has failed.

After a failed sync the kernel marks the bytes that it could not write as clean: they can be
read until their pages are evicted, and a second sync succeeds without writing
them. The boot id does not show that, since the machine did not go down. So a file exists as long as
no sync has failed, and is removed by the first that does: that needs no space, and a process
that is
killed at any other moment leaves it behind. If the file cannot be removed either, because the file
system became read-only, the node logs that.
"""

import logging
from pathlib import Path
from threading import Lock

from mainstem.log.disk.checked_file import write_checked
from mainstem.log.disk.file_access import storage_error

MARKER = "log.synced"
MARKER_KIND = b"SY"

logger = logging.getLogger(__name__)


class SyncMarker:
    """The marker file of one data directory."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / MARKER
        self._lock = Lock()
        self._has_failed = False

    @property
    def is_there(self) -> bool:
        """Whether no sync has failed since the file was created."""
        return self._path.exists()

    def put(self) -> None:
        """Create the file, durably, unless it exists or a sync of this process has failed.

        Raises:
            Unavailable: a call failed.
        """
        with self._lock:
            if self._has_failed or self.is_there:
                return
            try:
                write_checked(self._path, MARKER_KIND, b"", sync=True)
            except OSError as error:
                raise storage_error(error, self._path) from error

    def remove(self) -> None:
        """A sync has failed; callable from any thread."""
        with self._lock:
            self._has_failed = True
            try:
                self._path.unlink(missing_ok=True)
            except OSError as error:
                logger.critical(
                    "a sync failed, and %s cannot be removed: remove it before the next start (%s)",
                    self._path,
                    error,
                )
