"""Files of numbered frames that are only appended to: the catalogue's journal and Raft's log.

    header | mark | frame n | frame n+1 | …

Every frame is synced before the next one is written. So all but the last frame must be sound, and a
last frame that is not was never acknowledged. The *mark* records how far a file was known to be
durable. This module finds damage; the owner of a file decides how to handle it.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from struct import Struct

from crc32c import crc32c

from mainstem.model.errors import ErrorCode, Unavailable
from mainstem.model.file_errors import FileErrorKind, classify, is_descriptor_shortage
from mainstem.model.file_magic import check_magic
from mainstem.model.limits import MIB

HEADER = Struct(">8sQI12x")  # magic, number of the first frame, checksum of both
MARK = Struct(">QI20x")  # durable until this position, checksum
FRAME = Struct(">IIQ")  # payload bytes, checksum of number and payload, number
FRAMES_START = HEADER.size + MARK.size
FRAME_BYTES_MAX = 1024 * MIB

_U64 = Struct(">Q")


def start_of_file(magic: bytes, first: int, durable: int = FRAMES_START) -> bytes:
    """Header and mark of a file whose first frame has that number."""
    header = HEADER.pack(magic, first, crc32c(magic + _U64.pack(first)))
    return header + mark(durable)


def mark(durable: int) -> bytes:
    """The mark that records that everything before this position is durable."""
    return MARK.pack(durable, crc32c(_U64.pack(durable)))


def frame(number: int, payload: bytes) -> bytes:
    """The bytes of one frame."""
    return FRAME.pack(len(payload), _checksum(number, payload), number) + payload


def read_start(data: bytes, magic: bytes, path: Path) -> tuple[int, int] | None:
    """The number of the first frame and how far the file is durable; None if they are damaged.

    Raises:
        UnknownVersion: this release does not know the version of the file.
    """
    found, first, checksum = HEADER.unpack_from(data)
    if checksum == crc32c(data[:16]):
        check_magic(found, magic, "a log", str(path))
    durable, mark_checksum = MARK.unpack_from(data, HEADER.size)
    is_sound = (
        found == magic
        and checksum == crc32c(data[:16])
        and mark_checksum == crc32c(_U64.pack(durable))
        and not any(data[20:32])
        and not any(data[44:64])
    )
    return (first, durable) if is_sound else None


def frame_at(data: bytes, position: int, number: int) -> bytes | None:
    """The payload of frame ``number`` if it stands at ``position`` and is sound."""
    if position + FRAME.size > len(data):
        return None
    length, checksum, found = FRAME.unpack_from(data, position)
    start = position + FRAME.size
    if found != number or length > len(data) - start:
        return None
    payload = data[start : start + length]
    return payload if _checksum(number, payload) == checksum else None


def is_followed(data: bytes, position: int, number: int) -> bool:
    """Whether a sound frame ``number + 1`` follows the damaged one at ``position``."""
    pattern = _U64.pack(number + 1)
    at = data.find(pattern, position + FRAME.size)
    while at >= 0:
        if frame_at(data, at - 8, number + 1) is not None:
            return True
        at = data.find(pattern, at + 1)
    return False


def replace(path: Path, data: bytes, sync: Callable[[int], None]) -> None:
    """Put a file in place, complete and durable, or not at all."""
    os.close(replace_and_open(path, data, sync))


def replace_and_open(path: Path, data: bytes, sync: Callable[[int], None]) -> int:
    """Put a file in place like ``replace``; the descriptor of the new file.

    All descriptors are opened before a file is renamed: without a free one nothing changes.
    """
    fresh = path.with_name(path.name + ".new")
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            write_all(fd, data, 0)
            sync(fd)
            fresh.replace(path)
            os.fsync(folder)
        except BaseException:
            os.close(fd)
            with contextlib.suppress(OSError):  # a full disk needs its blocks for something else
                fresh.unlink()
            raise
    finally:
        os.close(folder)
    return fd


def write_all(fd: int, data: bytes | memoryview, position: int) -> None:
    """Write all of ``data``, however often it takes."""
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, position)
        view = view[written:]
        position += written


def is_not_replaced(error: OSError) -> bool:
    """Whether ``replace`` failed before it changed anything, for a transient reason."""
    return classify(error) is FileErrorKind.DISK_FULL or is_descriptor_shortage(error)


def refusal(error: OSError, path: Path) -> Unavailable | None:
    """The refusal for a failed write that may succeed later; None for a failed disk."""
    kind = classify(error)
    if kind is FileErrorKind.FAILED:
        return None
    full = kind is FileErrorKind.DISK_FULL
    code = ErrorCode.DISK_FULL if full else ErrorCode.OVERLOADED
    return Unavailable(code, f"{error.strerror or error}", subject=str(path))


def write_again(fd: int, data: bytes, durable: int, end: int) -> None:
    """Rewrite the bytes behind the mark in place, so that the next sync writes them.

    After a failed sync the kernel marks the pages clean, though they are not on disk.
    """
    write_all(fd, data[durable:end], durable)


def write_mark(fd: int, end: int) -> None:
    """Record in the header that a file is durable up to ``end``.

    Not synced by itself, and skipped on a full copy-on-write file system, where changing a block
    needs a new one: an older mark only means that less is known to be durable.
    """
    try:
        write_all(fd, mark(end), HEADER.size)
    except OSError as error:
        if classify(error) is not FileErrorKind.DISK_FULL:
            raise


def sync_folder(folder: Path) -> None:
    """Make the entries of a directory durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _checksum(number: int, payload: bytes) -> int:
    return crc32c(payload, crc32c(_U64.pack(number)))
