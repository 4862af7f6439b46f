"""The promises of this disk: up to which epoch the writers of a stream are refused.

One small file per partition that replicas are kept of, beside its ranges. It holds for the whole
stream: epochs only grow along it, so what was promised for one range is never wrong for the next.
A second file names the ranges in limbo: a power loss may have lost acknowledged records, and that
stays so over restarts, until the range is complete again. Without a readable file nothing is known
for sure, and the node must not answer for the stream.
"""

import os
from pathlib import Path
from struct import Struct
from threading import Lock
from typing import Final

import msgspec

from mainstem.log.disk.checked_file import read_checked, write_checked
from mainstem.log.disk.file_access import storage_error
from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.model.errors import Corrupt
from mainstem.model.ids import Epoch, RangeIndex

NAME: Final = "promised.epoch"
KIND: Final = b"PE"
LIMBO_NAME: Final = "limbo.ranges"
LIMBO_KIND: Final = b"LR"
NOTHING_PROMISED: Final = Epoch(-1)
# The partition, its topic, all topics, the data directory: each may be new.
_PARENTS: Final = 3

_EPOCH = Struct(">i")
_indexes = msgspec.msgpack.Decoder(set[RangeIndex]).decode


class Promise:
    """The promise of one stream on this disk; ``epoch`` may be ahead of what is stored.

    Raises:
        Corrupt: a file is damaged.
        Unavailable: a file cannot be read now.
    """

    def __init__(self, partition: Path) -> None:
        self._partition = partition
        self._lock = Lock()
        self._is_rooted = False
        try:
            self.epoch = self._stored = _read_epoch(partition / NAME)
            self.limbo = _read_limbo(partition / LIMBO_NAME)
        except OSError as error:
            raise storage_error(error, partition) from error

    def store(self, epoch: Epoch) -> None:
        """Make ``epoch`` durable, unless a newer one is; callable from any thread."""
        with self._lock:
            if epoch > self._stored:
                self._write(NAME, KIND, _EPOCH.pack(epoch))
                self._stored = epoch

    def set_limbo(self, index: RangeIndex, *, is_in_limbo: bool) -> None:
        """Record durably that a range is in limbo, or is no longer."""
        if (index in self.limbo) == is_in_limbo:
            return
        limbo = self.limbo ^ {index}
        with self._lock:
            self._write(LIMBO_NAME, LIMBO_KIND, msgspec.msgpack.encode(sorted(limbo)))
        self.limbo = limbo

    def _write(self, name: str, kind: bytes, payload: bytes) -> None:
        """Durable on return, with all the directories that lead there."""
        self._partition.mkdir(parents=True, exist_ok=True)
        write_checked(self._partition / name, kind, payload, sync=True)
        if not self._is_rooted:
            for parent in self._partition.parents[:_PARENTS]:
                _sync_directory(parent)
            self._is_rooted = True


def _read_epoch(path: Path) -> Epoch:
    """The newest epoch that was promised, ``NOTHING_PROMISED`` if none ever was."""
    try:
        payload = read_checked(path, KIND)
    except FileNotFoundError:
        return NOTHING_PROMISED
    if len(payload) != _EPOCH.size:
        raise Corrupt(f"{len(payload)} bytes of promise", subject=str(path))
    return Epoch(_EPOCH.unpack(payload)[0])


def _read_limbo(path: Path) -> set[RangeIndex]:
    try:
        return _indexes(read_checked(path, LIMBO_KIND))
    except FileNotFoundError:
        return set()
    except DECODE_ERRORS as error:
        raise Corrupt(f"{error}", subject=str(path)) from error


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
