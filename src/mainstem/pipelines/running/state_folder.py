"""The state folder of a connect process: one process at a time.

Two processes on one set of checkpoints would both write every batch. The lock is held by the
kernel, so it is released with the process, however that ends.

``version.json`` contains the version of everything in the folder: offsets of sources in
checkpoints, spools, lists of files. A folder without it has version 1.
"""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from msgspec import Struct

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.versioned_json import FIRST
from mainstem.pipelines.connector.state_file import read_json, replace_json

LOCK_NAME = "lock"
VERSION_NAME = "version.json"


class FolderVersion(Struct):
    """The content of ``version.json``."""

    version: int = FIRST


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
                remedy="set settings.state_dir to a writable folder",
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
        try:
            self._check_version()
        except BaseException:
            os.close(self._lock)
            raise
        return self

    def _check_version(self) -> None:
        """Refuse a folder of a later release; write the version to one of an earlier release."""
        path = self.path / VERSION_NAME
        if read_json(path, FolderVersion, "a state folder of pipelines") is None:
            replace_json(path, FolderVersion())

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
