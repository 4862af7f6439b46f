"""The checkpoint that a node reads when it starts: was the last stop clean, and what was durable.

The checkpoint is rewritten when the node starts (not clean), from time to time (recovery points of
the open ranges) and at the end of an orderly stop (clean). A recovery point records that everything
before it had been made durable: damage before it is corruption and is kept for the operator; only
what lies behind it can be a torn tail.
"""

from enum import Enum, auto
from pathlib import Path
from typing import NamedTuple

import msgspec

from mainstem.log.disk.checked_file import overwrite_checked, read_checked, write_checked
from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.model.errors import Corrupt
from mainstem.model.file_errors import FileErrorKind, classify

CHECKPOINT = "log.checkpoint"
CHECKPOINT_KIND = b"CP"
PADDING_BYTES = 512
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class FileTrust(Enum):
    """State of the files, depending on how the last process ended."""

    CLEAN = auto()  # everything was written, indexed and durable
    SAME_BOOT = auto()  # the process crashed, the kernel did not: all that was written is there
    OTHER_BOOT = auto()  # the machine went down: what was not durable may be gone or torn


class RecoveryPoint(NamedTuple):
    """Everything below was durable: an offset, and where it stands in which segment."""

    offset: int
    segment_base: int
    position: int


class Checkpoint(msgspec.Struct, frozen=True):
    """The content of the file."""

    boot_id: str
    clean: bool
    points: dict[str, RecoveryPoint]  # by range directory, relative to the data directory


def read_boot_id() -> str:
    """Identifies this run of the kernel; empty where there is no such id."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def load_checkpoint(data_dir: Path) -> Checkpoint | None:
    """The last checkpoint; None for a new directory.

    Raises:
        Corrupt: the file is damaged.
    """
    path = data_dir / CHECKPOINT
    try:
        payload = read_checked(path, CHECKPOINT_KIND)
    except FileNotFoundError:
        return None
    try:
        return msgspec.json.decode(payload, type=Checkpoint)
    except DECODE_ERRORS as error:
        raise Corrupt(f"{error}", subject=str(path)) from None


def save_checkpoint(data_dir: Path, checkpoint: Checkpoint) -> None:
    """Replace the checkpoint; durable on return.

    On a full disk it is written over the one that is there, whose padding leaves space for changes.
    """
    path = data_dir / CHECKPOINT
    payload = msgspec.json.encode(checkpoint)
    try:
        write_checked(path, CHECKPOINT_KIND, payload.ljust(len(payload) + PADDING_BYTES), sync=True)
    except OSError as error:
        if classify(error) is not FileErrorKind.DISK_FULL or not path.exists():
            raise
        if not overwrite_checked(path, CHECKPOINT_KIND, payload):
            raise


def trust_in(checkpoint: Checkpoint | None, boot_id: str) -> FileTrust:
    """How far the files can be trusted; without a checkpoint, or a boot id, not at all."""
    if checkpoint is None:
        return FileTrust.OTHER_BOOT
    if checkpoint.clean:
        return FileTrust.CLEAN
    if boot_id and checkpoint.boot_id == boot_id:
        return FileTrust.SAME_BOOT
    return FileTrust.OTHER_BOOT
