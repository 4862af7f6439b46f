"""Disks that are full, broken or lying: what is refused, what is final, what may be repeated."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.cluster.raft.kit import ONE, THREE, TWO

from mainstem.cluster.raft.messages import (
    ConfState,
    Entry,
    HardState,
    SnapshotMeta,
    initial_state,
)
from mainstem.cluster.raft.persistence.raft_storage import RaftStorage
from mainstem.cluster.raft.persistence.snapshot_storage import SNAPSHOT_BYTES_MAX, SnapshotStorage
from mainstem.cluster.raft.persistence.wal_storage import StorageFailed, WalFrame, WalStorage
from mainstem.model.errors import Corrupt, ErrorCode, Unavailable

CONF = ConfState((ONE, TWO, THREE))
META = SnapshotMeta(3, 1, CONF)


class Disk:
    """A sync that can be made to fail."""

    def __init__(self) -> None:
        self.error: int | None = None

    def sync(self, fd: int) -> None:
        if self.error is not None:
            raise OSError(self.error, os.strerror(self.error))
        os.fdatasync(fd)


def opened(folder: Path, disk: Disk) -> RaftStorage:
    storage = RaftStorage(folder, sync=disk.sync)
    storage.open(initial_state((ONE, TWO, THREE)))
    storage.save_now(HardState(1, TWO, 1), tuple(Entry(1, index) for index in (2, 3)))
    return storage


@pytest.mark.parametrize(
    "job",
    [
        lambda storage: storage.save_now(HardState(2), ()),
        lambda storage: storage.save_snapshot_now(META, b"state"),
    ],
    ids=["log", "snapshot"],
)
def test_after_a_failed_sync_nothing_is_taken_any_more(
    disk: Path, job: Callable[[RaftStorage], None]
) -> None:
    device = Disk()
    storage = opened(disk / "raft", device)
    device.error = errno.EIO
    with pytest.raises(StorageFailed):
        job(storage)
    device.error = None
    with pytest.raises(StorageFailed):
        storage.save_now(HardState(3), ())
    storage.close_now()


def test_a_snapshot_without_room_leaves_the_log_as_it_is(disk: Path) -> None:
    device = Disk()
    storage = opened(disk / "raft", device)
    device.error = errno.ENOSPC
    with pytest.raises(Unavailable) as refused:
        storage.save_snapshot_now(META, b"state")
    assert refused.value.code is ErrorCode.DISK_FULL
    device.error = None
    storage.save_now(HardState(3), ())
    storage.close_now()
    again = RaftStorage(disk / "raft")
    durable = again.open()
    again.close_now()
    assert (durable.hard_state.term, durable.snapshot.index) == (3, 1)


def test_an_arriving_snapshot_without_room_is_refused_and_may_come_again(disk: Path) -> None:
    device = Disk()
    storage = opened(disk / "raft", device)
    theirs = SnapshotStorage(disk)
    theirs.save(SnapshotMeta(9, 2, CONF), b"nine")
    outgoing = theirs.outgoing(SnapshotMeta(9, 2, CONF))
    assert outgoing is not None
    data = outgoing.read(0, outgoing.total_bytes)
    outgoing.close()
    ours = SnapshotStorage(disk / "raft", sync=device.sync)
    incoming = ours.incoming(SnapshotMeta(9, 2, CONF), len(data))
    device.error = errno.ENOSPC
    with pytest.raises(Unavailable):
        storage.receive_now(incoming, data)
    incoming.close()
    device.error = None
    incoming = ours.incoming(SnapshotMeta(9, 2, CONF), len(data))
    storage.receive_now(incoming, data)
    assert storage.save_now(HardState(2, commit=9), (), incoming) == b"nine"
    storage.close_now()


def test_a_file_that_cannot_be_removed_is_final(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = RaftStorage(disk / "raft", segment_bytes=100)
    storage.open(initial_state((ONE, TWO, THREE)))
    for index in range(2, 9):
        storage.save_now(None, (Entry(1, index),))

    def refuse(_self: Path, *, missing_ok: bool = False) -> None:
        raise OSError(errno.EIO, f"cannot be removed {missing_ok}")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        with pytest.raises(StorageFailed):
            storage.forget_now(8)
    storage.close_now()


@pytest.mark.parametrize(("error", "final"), [(errno.ENOSPC, False), (errno.EIO, True)])
def test_without_room_for_a_new_file_the_old_one_serves_on(
    disk: Path, error: int, final: bool
) -> None:
    device = Disk()
    wal = WalStorage(disk, segment_bytes=100, sync=device.sync)
    wal.open()
    wal.append(WalFrame(None, None, (Entry(1, 2, data=bytes(100)),)))
    syncs = 0

    def once(fd: int) -> None:
        nonlocal syncs
        syncs += 1
        if syncs == 1:  # the new file's
            raise OSError(error, os.strerror(error))
        os.fdatasync(fd)

    wal._sync = once
    if final:
        with pytest.raises(StorageFailed):
            wal.append(WalFrame(None, None, (Entry(1, 3),)))
    else:
        wal.append(WalFrame(None, None, (Entry(1, 3),)))
        assert len(list(disk.glob("*.wal"))) == 1
    wal.close()


def test_entries_missing_after_a_snapshot_stop_the_node(disk: Path) -> None:
    folder = disk / "raft"
    storage = RaftStorage(folder, segment_bytes=100)
    storage.open(initial_state((ONE, TWO, THREE)))
    for index in range(2, 12):
        storage.save_now(None, (Entry(1, index, data=bytes(50)),))
    storage.close_now()
    for path in sorted(folder.glob("*.wal"))[:5]:
        path.unlink()
    with pytest.raises(Corrupt, match="missing"):
        RaftStorage(folder).open()


@pytest.mark.parametrize("total_bytes", [0, 5, SNAPSHOT_BYTES_MAX + 1])
def test_a_snapshot_of_an_absurd_size_is_refused(disk: Path, total_bytes: int) -> None:
    with pytest.raises(Corrupt, match="announced"):
        SnapshotStorage(disk).incoming(META, total_bytes)


def test_a_write_that_fails_for_another_reason_than_room_is_final(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wal = WalStorage(disk)
    wal.open()

    def fail(_fd: int, _data: bytes, _position: int) -> int:
        raise OSError(errno.EIO, "the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fail)
        with pytest.raises(StorageFailed):
            wal.append(WalFrame(None, None, (Entry(1, 2),)))
    with pytest.raises(StorageFailed):
        wal.append(WalFrame(None, None, (Entry(1, 2),)))
    wal.close()
