"""Log and snapshots together, over restarts and at every point where a crash can come between."""

import shutil
from pathlib import Path

import pytest
from tests.unit.cluster.raft.kit import ONE, THREE, TWO

from mainstem.cluster.raft.messages import (
    ConfState,
    DurableState,
    Entry,
    EntryId,
    HardState,
    SnapshotMeta,
    initial_state,
)
from mainstem.cluster.raft.persistence.raft_storage import RaftStorage
from mainstem.cluster.raft.persistence.snapshot_storage import IncomingSnapshot, SnapshotStorage
from mainstem.model.errors import Corrupt, UnknownVersion

FOUNDERS = (ONE, TWO, THREE)
CONF = ConfState(FOUNDERS)


def entries(start: int, until: int, term: int = 1) -> tuple[Entry, ...]:
    return tuple(Entry(term, index, data=b"%d" % index) for index in range(start, until))


def opened(folder: Path, *, segment_bytes: int = 1 << 20) -> tuple[RaftStorage, DurableState]:
    storage = RaftStorage(folder, segment_bytes=segment_bytes)
    return storage, storage.open(initial_state(FOUNDERS))


def reopened(folder: Path) -> tuple[DurableState, bytes]:
    storage, durable = opened(folder)
    storage.close_now()
    return durable, storage.state


def arrived(folder: Path, meta: SnapshotMeta, state: bytes) -> IncomingSnapshot:
    """A snapshot that another node made, all of whose pieces are here."""
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    theirs = SnapshotStorage(elsewhere)
    theirs.save(meta, state)
    outgoing = theirs.outgoing(meta)
    assert outgoing is not None
    ours = SnapshotStorage(folder)
    incoming = ours.incoming(meta, outgoing.total_bytes)
    while not incoming.is_complete:
        incoming.write(outgoing.read(incoming.received_bytes, 7))
    outgoing.close()
    ours.check(incoming)
    return incoming


def test_a_founder_starts_with_the_founding_voters_and_keeps_them(disk: Path) -> None:
    folder = disk / "raft"
    storage, durable = opened(folder)
    storage.close_now()
    assert durable == initial_state(FOUNDERS)
    assert reopened(folder) == (durable, b"")


def test_a_node_that_joins_starts_with_nothing(disk: Path) -> None:
    storage = RaftStorage(disk / "raft")
    assert storage.open() == DurableState()
    storage.save_now(HardState(4), ())
    storage.close_now()
    again = RaftStorage(disk / "raft")
    assert again.open() == DurableState(HardState(4))
    again.close_now()


def test_a_crash_while_a_group_is_founded_is_no_loss(disk: Path) -> None:
    folder = disk / "raft"
    opened(folder)[0].close_now()
    for path in folder.glob("*.wal"):
        path.unlink()
    assert reopened(folder)[0] == initial_state(FOUNDERS)


def test_a_log_that_is_gone_stops_the_node(disk: Path) -> None:
    folder = disk / "raft"
    storage, _ = opened(folder)
    storage.save_now(HardState(1, TWO, 5), entries(2, 6))
    storage.save_snapshot_now(SnapshotMeta(5, 1, CONF), b"five")
    storage.close_now()
    for path in folder.glob("*.wal"):
        path.unlink()
    with pytest.raises(Corrupt, match="but the log does not"):
        RaftStorage(folder).open(initial_state(FOUNDERS))


def test_entries_and_votes_survive_a_restart(disk: Path) -> None:
    folder = disk / "raft"
    storage, _ = opened(folder)
    storage.save_now(HardState(2, TWO, 1), entries(2, 5))
    storage.close_now()
    durable, _ = reopened(folder)
    assert durable.hard_state == HardState(2, TWO, 1)
    assert durable.start == EntryId(1, 1)
    assert durable.entries == entries(2, 5)


def test_a_snapshot_takes_the_place_of_entries_but_for_the_last_few(disk: Path) -> None:
    folder = disk / "raft"
    storage, _ = opened(folder, segment_bytes=200)
    for index in range(2, 40):
        storage.save_now(HardState(1, TWO, index), entries(index, index + 1))
    storage.save_snapshot_now(SnapshotMeta(30, 1, CONF), b"thirty")
    storage.forget_now(30 - 5)
    storage.close_now()
    durable, state = reopened(folder)
    assert state == b"thirty"
    assert durable.snapshot == SnapshotMeta(30, 1, CONF)
    assert 2 < durable.start.index <= 25
    assert durable.entries[-1].index == 39
    assert durable.hard_state.commit >= 30


def test_an_installed_snapshot_replaces_the_log(disk: Path) -> None:
    folder = disk / "raft"
    storage, _ = opened(folder)
    storage.save_now(HardState(1), entries(2, 9))
    meta = SnapshotMeta(20, 3, CONF)
    state = storage.save_now(HardState(3, TWO, 20), entries(21, 23, 3), arrived(folder, meta, b"x"))
    storage.close_now()
    assert state == b"x"
    durable, found = reopened(folder)
    assert found == b"x"
    assert (durable.snapshot, durable.start) == (meta, EntryId(20, 3))
    assert durable.entries == entries(21, 23, 3)


@pytest.mark.parametrize("held", [2, 9, 25])
def test_a_crash_between_a_snapshot_and_the_log_that_follows_it_is_no_loss(
    disk: Path, held: int
) -> None:
    """The snapshot bears its name already, the log still holds what it replaced."""
    folder = disk / "raft"
    storage, _ = opened(folder)
    storage.save_now(HardState(1, TWO, 1), entries(2, held))
    meta = SnapshotMeta(20, 3, CONF)
    SnapshotStorage(folder).install(arrived(folder, meta, b"twenty"))
    storage.close_now()
    durable, state = reopened(folder)
    assert state == b"twenty"
    assert durable == DurableState(HardState(3, commit=20), meta, meta.id)
    again, _ = reopened(folder)
    assert again.entries == ()
    storage, _ = opened(folder)
    storage.save_now(None, entries(21, 24, 3))
    storage.close_now()
    assert reopened(folder)[0].entries == entries(21, 24, 3)


def test_half_a_snapshot_is_forgotten_at_the_next_start(disk: Path) -> None:
    folder = disk / "raft"
    storage, _ = opened(folder)
    incoming = SnapshotStorage(folder).incoming(SnapshotMeta(9, 1, CONF), 10_000)
    incoming.write(b"some of it")
    incoming.close()
    storage.close_now()
    assert reopened(folder)[0] == initial_state(FOUNDERS)
    assert not list(folder.glob("*.new"))


def test_a_snapshot_that_was_damaged_on_its_way_is_refused(disk: Path) -> None:
    theirs = SnapshotStorage(disk)
    meta = SnapshotMeta(9, 1, CONF)
    theirs.save(meta, b"a state of some length")
    [path] = disk.glob("*.snap")
    whole = path.read_bytes()
    for place in range(len(whole)):
        sent = whole[:place] + bytes([whole[place] ^ 0x01]) + whole[place + 1 :]
        folder = disk / "here"
        folder.mkdir()
        ours = SnapshotStorage(folder)
        incoming = ours.incoming(meta, len(sent))
        incoming.write(sent)
        with pytest.raises((Corrupt, UnknownVersion)):
            ours.check(incoming)
        incoming.close()
        shutil.rmtree(folder)


def test_another_snapshot_than_was_announced_is_refused(disk: Path) -> None:
    theirs = SnapshotStorage(disk)
    theirs.save(SnapshotMeta(9, 1, CONF), b"state")
    [path] = disk.glob("*.snap")
    incoming = theirs.incoming(SnapshotMeta(10, 1, CONF), path.stat().st_size)
    incoming.write(path.read_bytes())
    with pytest.raises(Corrupt, match="not the announced one"):
        theirs.check(incoming)
    incoming.close()


def test_a_damaged_snapshot_stops_the_node(disk: Path) -> None:
    folder = disk / "raft"
    opened(folder)[0].close_now()
    [path] = folder.glob("*.snap")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(Corrupt, match="snapshot is damaged"):
        RaftStorage(folder).open(initial_state(FOUNDERS))


def test_older_snapshots_go_when_a_newer_one_is_kept(disk: Path) -> None:
    snapshots = SnapshotStorage(disk)
    for index in (5, 9, 12):
        snapshots.save(SnapshotMeta(index, 1, CONF), b"%d" % index)
    assert [path.name for path in disk.glob("*.snap")] == [f"snapshot-{12:020d}.snap"]
    assert snapshots.newest() == (SnapshotMeta(12, 1, CONF), b"12")
    assert snapshots.outgoing(SnapshotMeta(9, 1, CONF)) is None


def test_a_snapshot_can_be_sent_while_a_newer_one_takes_its_place(disk: Path) -> None:
    snapshots = SnapshotStorage(disk)
    meta = SnapshotMeta(5, 1, CONF)
    snapshots.save(meta, b"five")
    outgoing = snapshots.outgoing(meta)
    assert outgoing is not None
    snapshots.save(SnapshotMeta(9, 1, CONF), b"nine")
    assert outgoing.read(0, outgoing.total_bytes).endswith(b"five")
    outgoing.close()


async def test_the_awaited_calls_do_the_same_on_threads(disk: Path) -> None:
    folder = disk / "raft"

    storage, _ = opened(folder)
    await storage.save(HardState(1, TWO, 3), entries(2, 6))
    await storage.save_snapshot(SnapshotMeta(4, 1, CONF), lambda: b"four", keep=0)
    outgoing = await storage.outgoing(SnapshotMeta(4, 1, CONF))
    assert outgoing is not None
    data = await storage.read(outgoing, 0, 1 << 20)
    outgoing.close()
    incoming = await storage.incoming(SnapshotMeta(4, 1, CONF), len(data))
    await storage.receive(incoming, data)
    incoming.close()
    await storage.close()
    durable, state = reopened(folder)
    assert (durable.snapshot.index, state) == (4, b"four")
