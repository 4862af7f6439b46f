"""System calls on files, and descriptors that are closed with their last reference.

``FileAccess`` is the one place where the package calls the kernel, so that a test can pass a disk
that is full or broken. ``OpenFile`` closes its descriptor when the last reference goes: a slice
that is still being sent keeps the bytes of a deleted segment readable.
"""

import ctypes
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from mainstem.model.errors import Corrupt, ErrorCode, Unavailable
from mainstem.model.file_errors import FileErrorKind, classify
from mainstem.model.records.batch import Buffer

_FALLOC_FL_KEEP_SIZE = 1

_libc = ctypes.CDLL(None, use_errno=True)


class OpenFile:
    """An open descriptor, closed with the last reference."""

    __slots__ = ("fd", "path")

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


class FileAccess:
    """The file calls of the log on a real disk.

    ``on_sync_failed`` is called first, on the thread of the failed sync.
    """

    on_sync_failed: Callable[[], None] | None = None

    def open_for_append(self, path: Path, *, create: bool) -> OpenFile:
        """Open for reading and writing; a file that is to be created must not exist."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        return OpenFile(path, os.open(path, flags, 0o600))

    def open_for_read(self, path: Path) -> OpenFile:
        """Open for reading."""
        return OpenFile(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def pwritev(self, fd: int, views: Sequence[Buffer], position: int) -> int:
        """Write the views one after the other; returns how many bytes went."""
        return os.pwritev(fd, views, position)

    def cut(self, fd: int, size: int) -> None:
        """Set the size; blocks reserved beyond it are released."""
        os.ftruncate(fd, size)

    def reserve(self, fd: int, start: int, size: int) -> bool:
        """Reserve blocks beyond the end without changing the size; False if not supported."""
        call = getattr(_libc, "fallocate", None)
        if call is None:
            return False
        result = call(fd, _FALLOC_FL_KEEP_SIZE, ctypes.c_int64(start), ctypes.c_int64(size))
        return bool(result == 0)

    def sync_data(self, fd: int) -> None:
        """Make the bytes of a file durable."""
        os.fdatasync(fd)

    def sync_failed(self) -> None:
        """A sync has failed: the content of the disk is unknown from now on."""
        if self.on_sync_failed is not None:
            self.on_sync_failed()

    def sync_path(self, path: Path) -> None:
        """Make a small file or the entries of a directory durable."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_file_system(self, fd: int) -> None:
        """Make everything on the file system of ``fd`` durable."""
        if _libc.syncfs(fd) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))


def read_fully(fd: int, size: int, position: int) -> bytes:
    """The bytes at ``position``; fewer only where the file ends."""
    data = os.pread(fd, size, position)
    if len(data) == size or not data:
        return data
    parts = [data]
    got = len(data)
    while got < size:
        data = os.pread(fd, size - got, position + got)
        if not data:
            break
        parts.append(data)
        got += len(data)
    return b"".join(parts)


def storage_error(error: OSError, path: Path) -> Unavailable:
    """The refusal for a failed call other than a sync."""
    kind = classify(error)
    if kind is FileErrorKind.DISK_FULL:
        return Unavailable(
            ErrorCode.DISK_FULL,
            f"no space left: {error.strerror}",
            subject=str(path),
            remedy="free space or lower retention; writing resumes by itself",
        )
    if kind is FileErrorKind.TRANSIENT:
        return Unavailable(
            ErrorCode.OVERLOADED,
            f"the system refused a call: {error.strerror}",
            subject=str(path),
            remedy="try again; raise the limit of open files (ulimit -n) or close connections",
        )
    return Unavailable(ErrorCode.STORAGE_FAILED, f"{error.strerror}", subject=str(path))


def unreadable(error: OSError, path: Path) -> Corrupt | Unavailable:
    """The error for a file that cannot be opened: damaged, or not available now."""
    if classify(error) is FileErrorKind.TRANSIENT:
        return storage_error(error, path)
    return Corrupt(f"cannot be opened: {error.strerror}", subject=str(path))
