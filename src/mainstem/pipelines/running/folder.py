"""The state folder of a connect process: one process at a time.

Two processes on one set of checkpoints would both write every batch. The lock is the kernel's, so
that it is gone with the process however that ends.
"""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from mainstem.model.errors import ErrorCode, InvalidRequest

LOCK_NAME = "lock"


class StateFolder:
    """A locked folder. A context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._lock = -1

    def __enter__(self) -> Self:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.path / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise InvalidRequest(
                ErrorCode.INVALID_CONFIG,
                f"the state folder cannot be used: {error.strerror}",
                subject=str(self.path),
                remedy="set settings.state_dir to a folder that can be written",
            ) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise InvalidRequest(
                ErrorCode.GROUP_NOT_EMPTY,
                "another process runs pipelines in this state folder",
                subject=str(self.path),
                remedy="stop it, or set another settings.state_dir",
            ) from None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._lock)


def is_locked(path: Path) -> bool:
    """Whether a process runs pipelines in the folder."""
    try:
        handle = os.open(path / LOCK_NAME, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(handle)
    return False
