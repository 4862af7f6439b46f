"""A rewritten range as files that another node can copy: compacted, or joined of several.

    listed ──▶ pieces ──▶ written beside, synced ──▶ checked ──▶ own header ──▶ renamed into place

Such a range never changes, so its files are the same on every disk, except for the header, which
names the disk. Guarantees: a folder gets its name when all of it is durable and every byte has been
checked; a file name that does not belong in a range folder is refused.
"""

import re
import shutil
from pathlib import Path
from typing import Final

from mainstem.log.disk.checked_file import write_checked
from mainstem.log.disk.file_access import FileAccess
from mainstem.log.identity import RANGE_KIND, RangeIdentity
from mainstem.log.naming import (
    COMPACTION_MARK,
    OPENING_SNAPSHOT,
    RANGE_HEADER,
    RANGE_SEAL,
    UNFINISHED_SUFFIX,
)
from mainstem.log.segments.open_files import OpenFiles
from mainstem.log.verification.data_directory import verify_directory
from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest

_SMALL: Final = frozenset({RANGE_SEAL, OPENING_SNAPSHOT, COMPACTION_MARK})
_SEGMENT: Final = re.compile(r"\d{20}\.(log|index|timeindex)")


def folder_files(directory: Path) -> list[tuple[str, int]]:
    """Names and sizes of the files of a rewritten range, without its header.

    Raises:
        InvalidRequest: there is no such range, or it is not finished.
    """
    if not (directory / RANGE_SEAL).exists():
        raise InvalidRequest(
            ErrorCode.INVALID_REQUEST, "there is no finished range", subject=str(directory)
        )
    return sorted(
        (path.name, path.stat().st_size) for path in directory.iterdir() if _belongs(path.name)
    )


def read_piece(directory: Path, name: str, position: int, size: int) -> bytes:
    """Bytes of one of the files."""
    if not _belongs(name):
        raise InvalidRequest(ErrorCode.INVALID_REQUEST, f"{name!r} is not a file of a range")
    with (directory / name).open("rb") as file:
        file.seek(position)
        return file.read(size)


class FolderCopy:
    """A folder that is being copied; ``publish`` gives it its name.

    Args:
        identity: the range it becomes on this disk.
        data_dir: the data directory.
    """

    def __init__(self, identity: RangeIdentity, data_dir: Path) -> None:
        self._identity = identity
        self.target = identity.path(data_dir)
        self._unfinished = self.target.with_name(self.target.name + UNFINISHED_SUFFIX)
        self.discard()
        self._unfinished.mkdir(parents=True)

    def write(self, name: str, position: int, data: bytes | memoryview) -> None:
        """Write a piece of a file, in order."""
        if not _belongs(name):
            raise Corrupt(f"a node sent {name!r} as a file of a range")
        with (self._unfinished / name).open("ab") as file:
            if file.tell() != position:
                raise Corrupt(f"a piece of {name} at {position}, where {file.tell()} comes next")
            file.write(data)

    def publish(self) -> None:
        """Check every byte, make all durable and give the folder its name.

        Raises:
            Corrupt: the received data is damaged.
        """
        access = FileAccess()
        header = self._unfinished / RANGE_HEADER
        write_checked(header, RANGE_KIND, self._identity.packed(), sync=True)
        if not self._identity.topic_header(self._unfinished).exists():
            self._identity.write(self._unfinished)
            access.sync_path(self._identity.topic_header(self._unfinished))
        for found in verify_directory(self._unfinished, OpenFiles(access, 16)):
            raise Corrupt(f"the data of another node is damaged: {found}")
        for path in self._unfinished.iterdir():
            access.sync_path(path)
        access.sync_path(self._unfinished)
        if self.target.exists():  # of an earlier attempt that the catalogue never listed
            shutil.rmtree(self.target)
        self._unfinished.rename(self.target)
        for parent in self.target.parents[:4]:
            access.sync_path(parent)

    def discard(self) -> None:
        """Remove what was not published."""
        if self._unfinished.exists():
            shutil.rmtree(self._unfinished)


def _belongs(name: str) -> bool:
    return name in _SMALL or _SEGMENT.fullmatch(name) is not None
