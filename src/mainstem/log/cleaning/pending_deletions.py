"""Directories to be deleted: renamed at once, their files removed gradually."""

import os
import shutil
from pathlib import Path

from mainstem.log.naming import DELETED_SUFFIX, UNFINISHED_SUFFIX


class PendingDeletions:
    """The directories to delete below a folder of topics, with those an earlier process left."""

    def __init__(self, topics: Path) -> None:
        self._directories: list[Path] = []
        # Half-deleted and half-written.
        for directory in (*topics.glob("*"), *topics.glob("*/*"), *topics.glob("*/*/*")):
            if directory.name.endswith(DELETED_SUFFIX) and directory.is_dir():
                self._directories.append(directory)
            elif directory.name.endswith(UNFINISHED_SUFFIX):
                self.add(directory)

    def add(self, directory: Path) -> None:
        """Rename a directory for deletion, if it exists."""
        if directory.is_dir():
            self._directories.append(renamed(directory, DELETED_SUFFIX))

    def sweep(self, files_max: int) -> bool:
        """Remove some files; True while there is more to do."""
        while self._directories:
            directory = self._directories[-1]
            for parent, _, names in os.walk(directory):
                for name in names:
                    if files_max <= 0:
                        return True
                    files_max -= 1
                    Path(parent, name).unlink(missing_ok=True)
            shutil.rmtree(directory)
            self._directories.pop()
        return False


def renamed(directory: Path, suffix: str) -> Path:
    """Rename a directory to an unused name with this suffix."""
    count = 0
    name = directory.with_name(directory.name + suffix)
    while name.exists():
        count += 1
        name = directory.with_name(f"{directory.name}.{count}{suffix}")
    return directory.rename(name)
