"""Bytes of whole batches in one file, to be sent or read."""

from mainstem.log.file_access import OpenFile, read_fully
from mainstem.model.errors import Corrupt


class FileSlice:
    """A piece of a segment; never changes, and keeps its file open for as long as it lives."""

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
        """The bytes."""
        data = read_fully(self.fd, self.size, self.position)
        if len(data) != self.size:
            raise Corrupt(
                f"{len(data)} bytes at {self.position} where {self.size} were written",
                subject=str(self._file.path),
            )
        return data
