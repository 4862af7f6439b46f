"""The send queue of one connection: bytes and slices of files, in order.

Pure: it returns the next piece, and the caller reports how much of it was sent.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

# Below this a copy through memory is cheaper than the extra system call of sendfile.
SENDFILE_BYTES_MIN = 16 * 1024
JOIN_BYTES_MAX = 256 * 1024


class FilePiece:
    """The unsent part of a file slice; keeps the slice, and so its file, open."""

    __slots__ = ("fd", "position", "remaining", "source")

    def __init__(self, source: Any) -> None:
        self.source = source
        self.fd: int = source.fd
        self.position: int = source.position
        self.remaining: int = len(source)


class Outbox:
    """An ordered queue of chunks with its size in bytes."""

    __slots__ = ("_chunks", "_joining", "_joining_bytes", "size_bytes")

    def __init__(self) -> None:
        self._chunks: deque[memoryview | FilePiece] = deque()
        self._joining: list[Any] = []
        self._joining_bytes = 0
        self.size_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._chunks) or bool(self._joining)

    def put(self, chunks: Sequence[Any], *, files: bool) -> None:
        """Queue ``chunks``. Slices are read here unless ``files`` is true."""
        for chunk in chunks:
            size = len(chunk)
            self.size_bytes += size
            if hasattr(chunk, "fd"):
                if files and size >= SENDFILE_BYTES_MIN and chunk.verified:
                    self._seal_joined()
                    self._chunks.append(FilePiece(chunk))
                    continue
                chunk = chunk.read()  # noqa: PLW2901 - the same bytes in another form
            if size > JOIN_BYTES_MAX:
                self._seal_joined()
                self._chunks.append(memoryview(chunk))
                continue
            self._joining.append(chunk)
            self._joining_bytes += size
            if self._joining_bytes > JOIN_BYTES_MAX:
                self._seal_joined()

    def next(self) -> memoryview | FilePiece | None:
        """The piece to send now."""
        if not self._chunks:
            self._seal_joined()
        return self._chunks[0] if self._chunks else None

    @property
    def more_follows(self) -> bool:
        """Whether another piece follows the next one."""
        return len(self._chunks) > 1 or bool(self._joining)

    def sent(self, count: int) -> None:
        """Remove ``count`` sent bytes of the piece from ``next``."""
        self.size_bytes -= count
        head = self._chunks[0]
        if isinstance(head, FilePiece):
            head.position += count
            head.remaining -= count
            if not head.remaining:
                self._chunks.popleft()
        elif count == len(head):
            self._chunks.popleft()
        else:
            self._chunks[0] = head[count:]

    def clear(self) -> None:
        """Drop everything."""
        self._chunks.clear()
        self._joining.clear()
        self._joining_bytes = self.size_bytes = 0

    def _seal_joined(self) -> None:
        joining = self._joining
        if joining:
            joined = joining[0] if len(joining) == 1 else b"".join(joining)
            self._chunks.append(memoryview(joined))
            self._joining = []
            self._joining_bytes = 0
