"""Bytes of whole batches in one file, to be sent or read."""

from mainstem.log.disk.file_access import OpenFile, read_fully, storage_error
from mainstem.model.errors import Corrupt


class FileSlice:
    """A piece of a segment; never changes, and keeps its file open."""

    __slots__ = ("_file", "fd", "position", "size", "start_offset", "until_offset", "verified")

    def __init__(
        self, file: OpenFile, position: int, size: int, start_offset: int, until_offset: int
    ) -> None:
        self._file = file
        self.fd = file.fd
        self.position = position
        self.size = size
        self.start_offset = start_offset
        self.until_offset = until_offset
        self.verified = True

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        """The bytes.

        Raises:
            Unavailable: the disk fails.
            Corrupt: the file has been truncated.
        """
        try:
            data = read_fully(self.fd, self.size, self.position)
        except OSError as error:
            raise storage_error(error, self._file.path) from error
        if len(data) != self.size:
            raise Corrupt(
                f"{len(data)} bytes at {self.position} where {self.size} were written",
                subject=str(self._file.path),
            )
        return data
