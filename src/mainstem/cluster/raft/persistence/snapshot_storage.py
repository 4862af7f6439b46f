"""Snapshots of the state machine as files, written whole and sent in chunks.

    snapshot-00000000000000004711.snap     header | what it covers | the state
    incoming.new                           one in transfer to this node, verified before it counts

A file is written under a temporary name, synced and renamed, so that a snapshot under its final
name is complete. The same bytes are sent between nodes, header included: the receiver
verifies their checksum.
"""

import os
from collections.abc import Callable
from pathlib import Path
from struct import Struct

import msgspec
from crc32c import crc32c

from mainstem.cluster.frame_storage import replace, sync_folder, write_all
from mainstem.cluster.raft.messages import SnapshotMeta
from mainstem.cluster.raft.persistence.wal_storage import REMEDY
from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.model.errors import Corrupt
from mainstem.model.file_magic import check_magic
from mainstem.model.limits import GIB, MIB

MAGIC = b"MSRAFTS1"
HEADER = Struct(">8sIQI")  # magic, bytes of the description, bytes of the state, checksum
SNAPSHOT_BYTES_MAX = 4 * GIB
READ_BYTES = 4 * MIB

_encode = msgspec.msgpack.Encoder().encode
_metas = msgspec.msgpack.Decoder(SnapshotMeta)


class OutgoingSnapshot:
    """A snapshot being read for another node; a newer one may replace the file meanwhile."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.total_bytes = os.fstat(self._fd).st_size

    def read(self, position: int, size: int) -> bytes:
        """Some bytes of the file."""
        return os.pread(self._fd, size, position)

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class IncomingSnapshot:
    """A snapshot that is received chunk by chunk, in order."""

    def __init__(self, path: Path, meta: SnapshotMeta, total_bytes: int) -> None:
        self.path = path
        self.meta = meta
        self.total_bytes = total_bytes
        self.received_bytes = 0
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o600)

    @property
    def is_complete(self) -> bool:
        """Whether the last chunk has arrived."""
        return self.received_bytes == self.total_bytes

    def write(self, data: bytes) -> None:
        """Write the next chunk."""
        write_all(self._fd, data, self.received_bytes)
        self.received_bytes += len(data)

    def check(self, sync: Callable[[int], None]) -> None:
        """All has arrived: make it durable and verify it.

        Raises:
            Corrupt: it is damaged, or not the announced one.
        """
        sync(self._fd)
        meta, _ = _parse(self.path, self.path.read_bytes())
        if meta != self.meta:
            raise Corrupt("the received snapshot is not the announced one", subject=str(self.path))

    def close(self) -> None:
        """Close the file; it stays where it is."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class SnapshotStorage:
    """The snapshots of one folder, of which the newest counts. Blocking."""

    def __init__(self, folder: Path, *, sync: Callable[[int], None] = os.fdatasync) -> None:
        self._folder = folder
        self._sync = sync

    def newest(self) -> tuple[SnapshotMeta, bytes] | None:
        """What the newest snapshot covers, and the state; None when there is none.

        Raises:
            Corrupt: it is damaged.
        """
        paths = self._paths()
        return _parse(paths[-1], paths[-1].read_bytes()) if paths else None

    def save(self, meta: SnapshotMeta, state: bytes) -> None:
        """Keep a snapshot of this node's own."""
        described = _encode(meta)
        checksum = crc32c(state, crc32c(described))
        header = HEADER.pack(MAGIC, len(described), len(state), checksum)
        replace(self._path(meta), header + described + state, self._sync)
        self._forget_older(meta)

    def outgoing(self, meta: SnapshotMeta) -> OutgoingSnapshot | None:
        """A snapshot to be sent; None when a newer one has replaced it."""
        try:
            return OutgoingSnapshot(self._path(meta))
        except FileNotFoundError:
            return None

    def incoming(self, meta: SnapshotMeta, total_bytes: int) -> IncomingSnapshot:
        """Reserve space for an announced snapshot.

        An earlier incomplete one is dropped.
        """
        if not HEADER.size <= total_bytes <= SNAPSHOT_BYTES_MAX:
            raise Corrupt(f"a snapshot of {total_bytes} bytes was announced")
        return IncomingSnapshot(self._folder / "incoming.new", meta, total_bytes)

    def check(self, incoming: IncomingSnapshot) -> None:
        """See ``IncomingSnapshot.check``."""
        incoming.check(self._sync)

    def install(self, incoming: IncomingSnapshot) -> bytes:
        """Install a verified snapshot; its state."""
        incoming.close()
        path = self._path(incoming.meta)
        if incoming.path.exists():  # else a first attempt got this far
            incoming.path.replace(path)
        sync_folder(self._folder)
        self._forget_older(incoming.meta)
        return _parse(path, path.read_bytes())[1]

    def _forget_older(self, meta: SnapshotMeta) -> None:
        for path in self._paths():
            if path.name < self._path(meta).name:
                path.unlink(missing_ok=True)

    def _path(self, meta: SnapshotMeta) -> Path:
        return self._folder / f"snapshot-{meta.index:020d}.snap"

    def _paths(self) -> list[Path]:
        return sorted(self._folder.glob("snapshot-*.snap"))


def _parse(path: Path, data: bytes) -> tuple[SnapshotMeta, bytes]:
    if len(data) >= HEADER.size:
        magic, meta_bytes, state_bytes, checksum = HEADER.unpack_from(data)
        until = HEADER.size + meta_bytes
        state = data[until:]
        sound = len(state) == state_bytes and crc32c(data[HEADER.size :]) == checksum
        if sound:
            check_magic(magic, MAGIC, "a snapshot", str(path))
        if sound and magic == MAGIC:
            try:
                return _metas.decode(data[HEADER.size : until]), state
            except DECODE_ERRORS as error:
                raise Corrupt(f"invalid metadata: {error}", subject=str(path)) from error
    raise Corrupt("the snapshot is damaged", subject=str(path), remedy=REMEDY)
