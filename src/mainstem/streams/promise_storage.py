"""The promises of this disk: up to which epoch the writers of a stream are refused.

One small file per partition that replicas are kept of, beside its ranges. It holds for the whole
stream: epochs only grow along it, so what was promised for one range is never wrong for the next.
A file that cannot be read leaves nothing to rely on, and the node must not answer for the stream.
"""

import os
from pathlib import Path
from struct import Struct
from threading import Lock
from typing import Final

from mainstem.log.checked_file import read_checked, write_checked
from mainstem.model.errors import Corrupt
from mainstem.model.ids import Epoch

NAME: Final = "promised.epoch"
KIND: Final = b"PE"
NOTHING_PROMISED: Final = Epoch(-1)
# The partition, its topic, all topics, the data directory: each may have been made just now.
_PARENTS: Final = 3

_EPOCH = Struct(">i")


class Promise:
    """What one stream was promised on this disk; ``epoch`` may be ahead of what is stored.

    Raises:
        Corrupt: the file is damaged.
    """

    def __init__(self, partition: Path) -> None:
        self._partition = partition
        self._lock = Lock()
        self.epoch = self._stored = _read(partition)

    def store(self, epoch: Epoch) -> None:
        """Make ``epoch`` durable, unless a newer one is; for any thread."""
        with self._lock:
            if epoch > self._stored:
                _write(self._partition, epoch)
                self._stored = epoch


def _read(partition: Path) -> Epoch:
    """The newest epoch that was promised, ``NOTHING_PROMISED`` if none ever was."""
    try:
        payload = read_checked(partition / NAME, KIND)
    except FileNotFoundError:
        return NOTHING_PROMISED
    if len(payload) != _EPOCH.size:
        raise Corrupt(f"{len(payload)} bytes of promise", subject=str(partition / NAME))
    return Epoch(_EPOCH.unpack(payload)[0])


def _write(partition: Path, epoch: Epoch) -> None:
    """Promise ``epoch``; durable on return, with all the directories that lead there."""
    is_new = not partition.is_dir()
    partition.mkdir(parents=True, exist_ok=True)
    write_checked(partition / NAME, KIND, _EPOCH.pack(epoch), sync=True)
    if is_new:
        for parent in partition.parents[:_PARENTS]:
            _sync_directory(parent)


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
