"""Storage of the audit log: a file that only its owner may read.

The file is rotated when it is large and few are kept, so that a client that is refused a million
times cannot fill the disk. It is created at the first line. Each line is one ``write``; a full disk
is reported in the node's own log and does not stop the node.
"""

import logging
import os
from pathlib import Path
from typing import Final

from mainstem.model.limits import MIB

FILE_BYTES_MAX: Final = 64 * MIB
FILES_KEPT: Final = 8

log = logging.getLogger(__name__)


class AuditFile:
    """Lines appended to a file."""

    def __init__(
        self, path: Path, *, file_bytes_max: int = FILE_BYTES_MAX, files_kept: int = FILES_KEPT
    ) -> None:
        self._path = path
        self._file_bytes_max = file_bytes_max
        self._files_kept = files_kept
        self._fd = -1
        self._size = 0

    def write(self, line: str) -> None:
        """Append one line."""
        data = line.encode() + b"\n"
        try:
            if self._fd < 0:
                self._open()
            if self._size and self._size + len(data) > self._file_bytes_max:
                self._put_aside()
            os.write(self._fd, data)
            self._size += len(data)
        except OSError as error:
            log.error("a line of %s is lost: %s", self._path.name, error)  # noqa: TRY400

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(self._path, flags, 0o600)
        self._size = os.fstat(self._fd).st_size

    def _put_aside(self) -> None:
        self.close()
        for number in range(self._files_kept - 1, 0, -1):
            older = self._numbered(number)
            if older.exists():
                older.replace(self._numbered(number + 1))
        self._path.replace(self._numbered(1))
        self._open()

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")
