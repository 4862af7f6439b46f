"""Requests that were answered with *accepted*, stored on disk until their records are in a topic.

    <first number>.log:  (length u32, crc32 u32, msgpack Request)*

Guarantees: a request whose ``add`` returned survives a crash; numbers have no gaps; a partial write
after a crash or on a full disk was never acknowledged and is truncated; on a disk error requests
are refused, and the next ``add`` tries again. One thread owns the files: the listener and the
reader of the stream submit their calls to it.
"""

import contextlib
import errno
import logging
import os
import struct
import zlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from mainstem.model.errors import ErrorCode, Unavailable

SEGMENT_BYTES: Final = 16 * 1024 * 1024
REQUESTS_MAX: Final = 1_000_000
_HEAD: Final = struct.Struct(">II")

_log = logging.getLogger(__name__)


class Request(Struct, frozen=True, array_like=True):
    """One request: its body and metadata; ``at_us`` is its time in microseconds since 1970."""

    body: bytes
    headers: list[tuple[str, bytes]]
    at_us: int
    idempotency_key: str = ""


class SpoolSegment(Struct):
    """A file of the spool and the sizes of its requests."""

    path: Path
    first: int
    sizes: list[int]

    @property
    def until(self) -> int:
        """The number after the last one."""
        return self.first + len(self.sizes)


class RequestSpool:
    """The requests from ``start`` (included) to ``until`` (excluded)."""

    def __init__(self, folder: Path, *, bytes_max: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._bytes_max = bytes_max
        self._owner = ThreadPoolExecutor(1, "webhook-spool")
        names = sorted(folder.glob("*.log"), key=lambda path: int(path.stem))
        self._segments = deque(_recovered(path) for path in names)
        if not self._segments:
            self._segments.append(_begun(folder, 0))
        # Unbuffered: data of a failed write must not be written by the next flush.
        self._file = self._segments[-1].path.open("ab", buffering=0)
        self._is_torn = False  # whether bytes of a refused request follow the last stored one

    @property
    def start(self) -> int:
        """The number of the oldest stored request."""
        return self._segments[0].first

    @property
    def until(self) -> int:
        """The number of the next request."""
        return self._segments[-1].until

    @property
    def size_bytes(self) -> int:
        """The size of the stored requests."""
        return sum(sum(segment.sizes) for segment in self._segments)

    def add(self, requests: list[Request]) -> None:
        """Store requests and flush them to disk.

        Raises:
            Unavailable: there is no space, or the disk cannot be written.
        """
        self._owner.submit(self._add, requests).result()

    def end_within(self, start: int, *, rows_max: int, bytes_max: int) -> int:
        """The end of a range from ``start`` within the limits; at least one request."""
        return self._owner.submit(self._end_within, start, rows_max, bytes_max).result()

    def read(self, start: int, until: int) -> list[Request]:
        """The requests of a stored range."""
        return self._owner.submit(self._read, start, until).result()

    def drop(self, until: int) -> None:
        """Delete requests below a number, segment by segment."""
        self._owner.submit(self._drop, until).result()

    def recent_keys(self) -> list[str]:
        """Idempotency keys of the stored requests, oldest first."""
        return self._owner.submit(self._recent_keys).result()

    def close(self) -> None:
        """Close the file."""
        self._owner.shutdown()
        self._file.close()

    def _add(self, requests: list[Request]) -> None:
        frames = [_frame(request) for request in requests]
        size = sum(map(len, frames))
        kept = self.until - self.start + len(frames)
        if self.size_bytes + size > self._bytes_max or kept > REQUESTS_MAX:
            raise Unavailable(ErrorCode.OVERLOADED, "the spool is full")
        try:
            self._truncate()
            segment = self._segments[-1]
            if segment.sizes and sum(segment.sizes) >= SEGMENT_BYTES:
                segment = self._roll()
            self._is_torn = True
            _write(self._file, b"".join(frames))
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._refusal(error) from error
        self._is_torn = False
        segment.sizes += map(len, frames)

    def _truncate(self) -> None:
        """Truncate the partial write of a refused request."""
        if self._is_torn:
            segment = self._segments[-1]
            os.truncate(segment.path, sum(segment.sizes))
            self._is_torn = False

    def _refusal(self, error: OSError) -> Unavailable:
        """Free the space of the failed write, so that other requests fit; returns the error."""
        with contextlib.suppress(OSError):  # retried before the next write
            self._truncate()
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        _log.warning("requests are refused, the spool cannot be written: %s", error)
        return Unavailable(
            ErrorCode.DISK_FULL if is_full else ErrorCode.STORAGE_FAILED,
            f"the spool cannot be written: {error.strerror}",
            subject=str(self._folder),
            remedy="free disk space; requests are then accepted again",
        )

    def _end_within(self, start: int, rows_max: int, bytes_max: int) -> int:
        end, taken = start, 0
        for segment in self._segments:
            for number, size in enumerate(segment.sizes, segment.first):
                if number < start:
                    continue
                taken += size
                if number > start and (number - start >= rows_max or taken > bytes_max):
                    return end
                end = number + 1
        return end

    def _read(self, start: int, until: int) -> list[Request]:
        assert self.start <= start <= until <= self.until, (start, until)
        wanted = [s for s in self._segments if s.first < until and s.until > start]
        return [
            request
            for segment in wanted
            for number, request in enumerate(_requests(segment.path), segment.first)
            if start <= number < until
        ]

    def _drop(self, until: int) -> None:
        if self._segments[-1].sizes and self._segments[-1].until <= until:
            try:
                self._roll()
            except OSError as error:
                # It is deleted with the next call; the segments before it can be deleted now.
                _log.warning("a segment of the spool cannot be deleted yet: %s", error)
        while len(self._segments) > 1 and self._segments[0].until <= until:
            self._segments.popleft().path.unlink()

    def _recent_keys(self) -> list[str]:
        kept = (each for segment in self._segments for each in _requests(segment.path))
        return [each.idempotency_key for each in kept if each.idempotency_key]

    def _roll(self) -> SpoolSegment:
        segment = _begun(self._folder, self.until)
        file = segment.path.open("ab", buffering=0)
        # No failure is possible from here on: until here the old segment is the last one.
        self._file.close()
        self._segments.append(segment)
        self._file = file
        return segment


def _write(file: FileIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) or 0 :]


def _frame(request: Request) -> bytes:
    body = msgspec.msgpack.encode(request)
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def _begun(folder: Path, first: int) -> SpoolSegment:
    path = folder / f"{first:020}.log"
    path.touch()
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    return SpoolSegment(path, first, [])


def _frames(path: Path) -> Iterator[bytes]:
    """Complete frames, up to the first that is incomplete or damaged."""
    with path.open("rb") as file:
        while len(head := file.read(_HEAD.size)) == _HEAD.size:
            length, crc = _HEAD.unpack(head)
            body = file.read(length)
            if len(body) < length or zlib.crc32(body) != crc:
                return
            yield body


def _requests(path: Path) -> Iterator[Request]:
    decode = msgspec.msgpack.Decoder(Request).decode
    return map(decode, _frames(path))


def _recovered(path: Path) -> SpoolSegment:
    sizes = [_HEAD.size + len(body) for body in _frames(path)]
    if sum(sizes) < path.stat().st_size:
        os.truncate(path, sum(sizes))
    return SpoolSegment(path, int(path.stem), sizes)
