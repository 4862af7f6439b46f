"""A full disk: calls that need a new block or a new name below a folder fail with ENOSPC."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


class FullDisk:
    """Lets ``room`` more calls through that take space; None: any number."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path) -> None:
        self.room: int | None = None
        self.taken = 0
        self._folder = str(folder)
        real_open, real_mkdir = os.open, os.mkdir
        real_write, real_pwrite, real_pwritev = os.write, os.pwrite, os.pwritev

        def opened(path: Any, flags: int, *args: Any, **names: Any) -> int:
            if flags & os.O_CREAT and self._is_here(path) and not Path(path).exists():
                self._take(path)
            return real_open(path, flags, *args, **names)

        def made(path: Any, *args: Any, **names: Any) -> None:
            if self._is_here(path) and not Path(path).exists():
                self._take(path)
            real_mkdir(path, *args, **names)

        def written(fd: int, data: Any) -> int:
            self._extend(fd, lambda: os.lseek(fd, 0, os.SEEK_CUR), len(data))
            return real_write(fd, data)

        def written_at(fd: int, data: Any, position: int) -> int:
            self._extend(fd, lambda: position, len(data))
            return real_pwrite(fd, data, position)

        def written_all(fd: int, views: Any, position: int) -> int:
            self._extend(fd, lambda: position, sum(len(view) for view in views))
            return real_pwritev(fd, views, position)

        patch.setattr(os, "open", opened)
        patch.setattr(os, "mkdir", made)
        patch.setattr(os, "write", written)
        patch.setattr(os, "pwrite", written_at)
        patch.setattr(os, "pwritev", written_all)

    def _is_here(self, path: Any) -> bool:
        return str(path).startswith(self._folder)

    def _extend(self, fd: int, position: Callable[[], int], size: int) -> None:
        if self.room is None:
            return
        path = str(Path(f"/proc/self/fd/{fd}").readlink())
        if self._is_here(path) and position() + size > os.fstat(fd).st_size:
            self._take(path)

    def _take(self, path: Any) -> None:
        if self.room is None:
            return
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        self.room -= 1
        self.taken += 1
