"""Stores of object connectors: one interface for folders and buckets.

Guarantees: a file of ``writer`` is complete and durable when its block ends, or does not exist;
``create`` succeeds once; ``move`` may be repeated, also by a process that does not know how far
another one came.
"""

import contextlib
import errno
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Protocol

from msgspec import Struct

from mainstem.model.errors import ErrorCode, InvalidRequest, Unavailable


class StoredFile(Struct, frozen=True):
    """A file of a store; ``modified_s`` is in seconds since 1970."""

    path: str
    size_bytes: int
    modified_s: float


class FileStore(Protocol):
    """A tree of files; paths are relative and written with slashes."""

    def writer(self, path: str) -> AbstractContextManager[IO[bytes]]:
        """A file that appears when the block ends without an error."""

    def reader(self, path: str) -> AbstractContextManager[IO[bytes]]:
        """A file's bytes, seekable."""

    def create(self, path: str, data: bytes) -> bool:
        """Writes a small file unless it exists; False when it did."""

    def read(self, path: str) -> bytes | None:
        """A small file; None when it does not exist."""

    def move(self, source: str, target: str) -> None:
        """Moves a file; does nothing if it was already moved."""

    def delete(self, paths: Iterable[str]) -> None:
        """Deletes files; missing ones are ignored."""

    def files(self, prefix: str) -> Iterator[StoredFile]:
        """Every file below a folder, in no order."""


class FolderStore(Struct, frozen=True):
    """A folder of a file system."""

    root: Path

    @contextlib.contextmanager
    def writer(self, path: str) -> Iterator[IO[bytes]]:
        """A file that appears when the block ends without an error."""
        target = self.root / path
        hidden = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        with self._refusals(path):
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                with hidden.open("wb") as file:
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                hidden.rename(target)
                _sync(target.parent)
            finally:
                hidden.unlink(missing_ok=True)

    @contextlib.contextmanager
    def reader(self, path: str) -> Iterator[IO[bytes]]:
        """A file's bytes."""
        with (self.root / path).open("rb") as file:
            yield file

    def create(self, path: str, data: bytes) -> bool:
        """Writes a small file unless it exists, atomically by a hard link."""
        target = self.root / path
        fresh = f"{path}.{uuid.uuid4().hex}"
        with self._refusals(path):
            with self.writer(fresh) as file:
                file.write(data)
            try:
                os.link(self.root / fresh, target)
            except FileExistsError:
                return False
            finally:
                (self.root / fresh).unlink(missing_ok=True)
            _sync(target.parent)
            return True

    def read(self, path: str) -> bytes | None:
        """A small file; None when it does not exist."""
        try:
            return (self.root / path).read_bytes()
        except FileNotFoundError:
            return None

    def move(self, source: str, target: str) -> None:
        """Moves a file; does nothing if it was already moved."""
        goal = self.root / target
        with self._refusals(target):
            goal.parent.mkdir(parents=True, exist_ok=True)
            try:
                (self.root / source).rename(goal)
            except FileNotFoundError:
                if not goal.exists():
                    raise
            _sync(goal.parent)

    def delete(self, paths: Iterable[str]) -> None:
        """Deletes files, and the folders that they leave empty."""
        for path in paths:
            file = self.root / path
            file.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # not empty, or already deleted
                file.parent.rmdir()

    def files(self, prefix: str) -> Iterator[StoredFile]:
        """Every file below a folder, in no order."""
        top = self.root / prefix
        for folder, _, names in os.walk(top):
            for name in names:
                file = Path(folder) / name
                try:
                    status = file.stat()
                except FileNotFoundError:
                    continue
                relative = file.relative_to(self.root).as_posix()
                yield StoredFile(relative, status.st_size, status.st_mtime)

    @contextlib.contextmanager
    def _refusals(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise refusal(error, self.root / path) from error


def refusal(error: OSError, path: Path) -> InvalidRequest | Unavailable:
    """An error of the file system, with its remedy."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return Unavailable(
            ErrorCode.DISK_FULL,
            f"the disk is full: {error.strerror}",
            subject=str(path),
            remedy="free disk space; the batch is then repeated",
        )
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR}:
        return InvalidRequest(
            ErrorCode.INVALID_CONFIG,
            f"cannot write to this path: {error.strerror}",
            subject=str(path),
            remedy="use a folder that this user may write to",
        )
    return Unavailable(ErrorCode.STORAGE_FAILED, f"{error.strerror or error}", subject=str(path))


def free_bytes(path: Path) -> int:
    """The free space of the file system of a folder, which may not exist yet."""
    return shutil.disk_usage(nearest_folder(path)).free


def nearest_folder(path: Path) -> Path:
    """The folder itself or the first one above it that exists."""
    return next(each for each in (path, *path.resolve().parents) if each.exists())


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
