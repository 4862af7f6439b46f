"""Spools the slot's messages from the driver, which counts them, to the task that decodes them.

The server decodes its log again for every request, which takes it about as long as converting the
changes takes here. So the driver, which has to find the ends of transactions anyway, writes the
messages to a file, and the task reads that.

    [position and message, as a row of COPY's binary format]*  size of all before, crc, magic

Guarantees: a file only saves work: if it is missing, torn, or on another machine, the slot returns
the same messages again; a file is removed when it is no longer needed; no file grows beyond
``FILE_BYTES_MAX``.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from mainstem.pipelines.cdc.postgres.pgoutput import COMMIT, INSERT, MESSAGE
from mainstem.pipelines.cdc.spool import SPOOL_NAME, private

FILE_BYTES_MAX: Final = 256 << 20
READ_BYTES: Final = 1 << 20
Block = bytes | bytearray | memoryview
_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\x00"
_HEADER_BYTES: Final = 19
# Of a row (lsn, data): two fields, eight bytes of LSN, and the size of the message.
_ROW: Final = struct.Struct(">hiQi")
_END: Final = struct.Struct(">QI8s")
_MAGIC: Final = b"MSLOGSP1"
_PREFIX: Final = "log-"
_NEW: Final = ".log-new"


class MessageBoundary(NamedTuple):
    """The end of a transaction, a message or a row of the signal table among all messages.

    ``number`` counts messages from 1; ``place`` is its LSN, ``data`` the message.
    """

    number: int
    place: int
    data: bytes


class MessageSpool:
    """The driver's side: stores the messages of the next batch."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / SPOOL_NAME
        self._ends: dict[int, tuple[int, int]] = {}

    def fill(self, blocks: Iterable[Block], signal_oid: int) -> list[MessageBoundary]:
        """Stores messages; returns those that a batch may end at, and those that may be signals."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._ends = {}
        signal_start = bytes((INSERT,)) + signal_oid.to_bytes(4, "big")
        found: list[MessageBoundary] = []
        size = crc = 0
        with open(self._folder / _NEW, "wb", buffering=READ_BYTES, opener=private) as out:
            for number, row in enumerate(_rows(blocks), 1):
                if size <= FILE_BYTES_MAX:
                    size += out.write(row)
                    crc = zlib.crc32(row, crc)
                kind = row[_ROW.size]
                if kind in (COMMIT, MESSAGE):
                    self._ends[number] = (size, crc)
                elif kind != INSERT or row[_ROW.size : _ROW.size + 5] != signal_start:
                    continue
                found.append(
                    MessageBoundary(number, _ROW.unpack_from(row)[2], bytes(row[_ROW.size :]))
                )
        return found

    def keep(self, since: int, until: int, number: int) -> None:
        """Makes the messages up to ``number`` the batch between two positions; drops the rest."""
        size, crc = self._ends[number]
        fresh = self._folder / _NEW
        if size > FILE_BYTES_MAX:
            fresh.unlink()
            return
        with fresh.open("r+b") as out:
            out.truncate(size)
            out.seek(size)
            out.write(_END.pack(size, crc, _MAGIC))
        fresh.replace(_path(self._folder, since, until))

    def forget(self, until: int) -> None:
        """Removes the files of batches up to ``until``, which are no longer needed."""
        for path in self._folder.glob(f"{_PREFIX}*"):
            if int(path.stem.rpartition("-")[2], 16) <= until:
                path.unlink(missing_ok=True)


def spooled_messages(folder: Path, since: int, until: int) -> Iterator[tuple[int, bytes]] | None:
    """The messages of a batch with their positions; None if no intact file has them."""
    path = _path(folder / SPOOL_NAME, since, until)
    try:
        whole = path.open("rb")
    except FileNotFoundError:
        return None
    size = _sound_size(whole)
    if size is None:
        whole.close()
        return None
    return _read(whole, size)


def fetched_messages(blocks: Iterable[Block]) -> Iterator[tuple[int, bytes]]:
    """Messages with their positions, directly from the server."""
    for row in _rows(blocks):
        yield _ROW.unpack_from(row)[2], bytes(row[_ROW.size :])


def _rows(blocks: Iterable[Block]) -> Iterator[Block]:
    """COPY's rows without its header and its trailer."""
    blocks = iter(blocks)
    for block in blocks:
        begun = block[_HEADER_BYTES:] if block[:11] == _SIGNATURE else block
        if len(begun) > _ROW.size:
            yield begun
        break
    for block in blocks:
        if len(block) > _ROW.size:
            yield block


def _sound_size(whole: BinaryIO) -> int | None:
    """The size of a file's messages in bytes; None if the file is damaged."""
    crc, size, left = 0, 0, whole.seek(0, 2) - _END.size
    if left < 0:
        return None
    whole.seek(0)
    while left:
        part = whole.read(min(left, READ_BYTES))
        crc, size, left = zlib.crc32(part, crc), size + len(part), left - len(part)
    if _END.unpack(whole.read(_END.size)) != (size, crc, _MAGIC):
        return None
    whole.seek(0)
    return size


def _read(whole: BinaryIO, size: int) -> Iterator[tuple[int, bytes]]:
    unpack, head = _ROW.unpack_from, _ROW.size
    with whole:
        rest = b""
        while size:
            part = rest + whole.read(min(size, READ_BYTES))
            size -= len(part) - len(rest)
            at, until = 0, len(part)
            while at + head <= until:
                _, _, place, length = unpack(part, at)
                end = at + head + length
                if end > until:
                    break
                yield place, part[at + head : end]
                at = end
            rest = part[at:]


def _path(folder: Path, since: int, until: int) -> Path:
    return folder / f"{_PREFIX}{since:016x}-{until:016x}"
