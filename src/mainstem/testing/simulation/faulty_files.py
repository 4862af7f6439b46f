"""Disk faults: makes file calls of this process fail in folders that have a fault.

    with FaultyFiles() as files:
        files.begin(folder, FileFault.FULL)      # writes below ``folder`` are refused with ENOSPC
        files.end(folder)

Faults affect all code that uses files below a folder: the system calls are replaced for the whole
process until the ``with`` ends. A folder without a fault costs one test per call.
"""

import errno
import io
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum, auto
from pathlib import Path
from typing import Any, Final

from mainstem.model.records.batch import Buffer


class FileFault(Enum):
    """Kind of a disk fault."""

    FULL = auto()  # files cannot grow, and none can be created
    NO_DESCRIPTORS = auto()  # nothing can be opened
    READS_FAIL = auto()
    SYNCS_FAIL = auto()


ERRORS: Final = {
    FileFault.FULL: errno.ENOSPC,
    FileFault.NO_DESCRIPTORS: errno.EMFILE,
    FileFault.READS_FAIL: errno.EIO,
    FileFault.SYNCS_FAIL: errno.EIO,
}


class FaultyFiles:
    """Makes file calls fail in chosen folders."""

    def __init__(self) -> None:
        self._faults: dict[str, set[FileFault]] = {}
        self._was_short: set[str] = set()
        self._cut_next: set[str] = set()
        self.refused = dict.fromkeys(FileFault, 0)

    def begin(self, folder: Path, fault: FileFault) -> None:
        """Start a fault in a folder."""
        self._faults.setdefault(f"{folder}/", set()).add(fault)

    def end(self, folder: Path, *faults: FileFault) -> None:
        """End these faults of a folder, or all."""
        found = self._faults.get(f"{folder}/", set())
        found -= set(faults or FileFault)
        if not found:
            self._faults.pop(f"{folder}/", None)

    def has(self, folder: Path, fault: FileFault) -> bool:
        """Whether a folder has a fault."""
        return fault in self._faults.get(f"{folder}/", ())

    def check(self, path: str, fault: FileFault) -> None:
        """Raise the error that a call on a path gets, if any."""
        below = f"{path}/"
        for folder, has in self._faults.items():
            if fault in has and below.startswith(folder):
                self.refused[fault] += 1
                number = ERRORS[fault]
                raise OSError(number, os.strerror(number), path)

    def _is_anywhere(self, fault: FileFault) -> bool:
        """Whether any folder has a fault: finding the folder of a file costs a system call."""
        return any(fault in has for has in self._faults.values())

    def check_fd(self, fd: int, fault: FileFault) -> None:
        """Raise the error that a call on an open file gets, if any."""
        if self._faults and self._is_anywhere(fault):
            self.check(_path_of(fd), fault)

    def check_growth(self, fd: int, size: int, position: int | None = None) -> bool:
        """Whether a write must be partial; raises if it must fail.

        A disk that becomes full accepts the first part of a write and refuses the next.
        """
        if not self._is_anywhere(FileFault.FULL):
            return False
        path = _path_of(fd)
        try:
            self.check(path, FileFault.FULL)
        except OSError:
            start = os.lseek(fd, 0, os.SEEK_CUR) if position is None else position
            if start + size <= os.fstat(fd).st_size:
                return False
            if path in self._was_short:
                self._was_short.discard(path)
                raise
            self._was_short.add(path)
            return True
        return False

    def check_read(self, fd: int) -> bool:
        """Whether a read must be partial; raises if it must fail.

        One read fails; the next returns what is before the bad block, and that of the rest fails.
        """
        if not self._is_anywhere(FileFault.READS_FAIL):
            return False
        path = _path_of(fd)
        try:
            self.check(path, FileFault.READS_FAIL)
        except OSError:
            if path not in self._cut_next:
                self._cut_next.add(path)
                raise
            self._cut_next.discard(path)
            return True
        return False

    def __enter__(self) -> "FaultyFiles":
        self._replaced = replaced(self)
        self._replaced.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._faults.clear()
        self._replaced.__exit__(None, None, None)


def _path_of(fd: int) -> str:
    return os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115 - a simulation's writes all come here


@contextmanager
def replaced(files: FaultyFiles) -> Iterator[None]:
    """Replace the file calls of this process by ones with the faults of ``files``."""
    calls = _calls(files)
    before = {place: getattr(*place) for place in calls}
    for place, call in calls.items():
        setattr(*place, call)
    try:
        yield
    finally:
        for place, call in before.items():
            setattr(*place, call)


def _calls(files: FaultyFiles) -> dict[tuple[Any, str], Callable[..., Any]]:
    """The calls that can fail, by module and name."""
    return {
        **_opening(files),
        **_writing(files),
        (os, "pread"): _reading(files),
        (os, "fsync"): _with_fd(os.fsync, files, FileFault.SYNCS_FAIL),
        (os, "fdatasync"): _with_fd(os.fdatasync, files, FileFault.SYNCS_FAIL),
        (os, "listdir"): _with_path(os.listdir, files, FileFault.NO_DESCRIPTORS),
        (os, "scandir"): _with_path(os.scandir, files, FileFault.NO_DESCRIPTORS),
        (os, "mkdir"): _with_path(os.mkdir, files, FileFault.FULL),
    }


def _opening(files: FaultyFiles) -> dict[tuple[Any, str], Callable[..., Any]]:
    real_open, real_io_open = os.open, io.open

    def open_fd(path: Any, flags: int, *args: Any, **named: Any) -> int:
        if files._faults:
            name = os.fspath(path)
            files.check(name, FileFault.NO_DESCRIPTORS)
            if flags & os.O_CREAT and not Path(name).exists():
                files.check(name, FileFault.FULL)
        return real_open(path, flags, *args, **named)

    def open_file(path: Any, mode: str = "r", *args: Any, **named: Any) -> Any:
        if files._faults and isinstance(path, str | os.PathLike):
            name = str(os.fspath(path))
            files.check(name, FileFault.NO_DESCRIPTORS)
            files.check(name, FileFault.FULL if set(mode) & set("wax") else FileFault.READS_FAIL)
        return real_io_open(path, mode, *args, **named)

    return {(os, "open"): open_fd, (io, "open"): open_file}


def _reading(files: FaultyFiles) -> Callable[[int, int, int], bytes]:
    real_pread = os.pread

    def pread(fd: int, size: int, position: int) -> bytes:
        if files._faults and size > 1 and files.check_read(fd):
            size //= 2
        return real_pread(fd, size, position)

    return pread


def _writing(files: FaultyFiles) -> dict[tuple[Any, str], Callable[..., Any]]:
    real_write, real_pwrite, real_pwritev = os.write, os.pwrite, os.pwritev

    def write(fd: int, data: Buffer) -> int:
        if files.check_growth(fd, len(data)):
            return real_write(fd, data[: max(1, len(data) // 2)])
        return real_write(fd, data)

    def pwrite(fd: int, data: Buffer, position: int) -> int:
        if files.check_growth(fd, len(data), position):
            return real_pwrite(fd, data[: max(1, len(data) // 2)], position)
        return real_pwrite(fd, data, position)

    def pwritev(fd: int, views: Sequence[Buffer], position: int) -> int:
        if files._faults and files.check_growth(fd, sum(map(len, views)), position):
            return real_pwrite(fd, views[0][: max(1, len(views[0]) // 2)], position)
        return real_pwritev(fd, views, position)

    return {(os, "write"): write, (os, "pwrite"): pwrite, (os, "pwritev"): pwritev}


def _with_fd(real: Callable[..., Any], files: FaultyFiles, fault: FileFault) -> Callable[..., Any]:
    def call(fd: int, *args: Any) -> Any:
        files.check_fd(fd, fault)
        return real(fd, *args)

    return call


def _with_path(
    real: Callable[..., Any], files: FaultyFiles, fault: FileFault
) -> Callable[..., Any]:
    def call(path: Any = ".", *args: Any, **named: Any) -> Any:
        if files._faults and not isinstance(path, int):
            files.check(str(os.fspath(path)), fault)
        return real(path, *args, **named)

    return call
