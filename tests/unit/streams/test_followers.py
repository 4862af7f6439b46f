"""Streams that are read from the replicas of other nodes, on real files."""

import asyncio
from pathlib import Path

import pytest
from tests.kit.cluster import STREAM, StreamCluster, StreamClusterNode, values_in
from tests.kit.loop import virtual_time
from tests.kit.waiting import eventually

from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.model.ids import NO_NODE
from mainstem.model.records.batch import TRANSACTIONAL_MASK
from mainstem.model.records.record import ProducerStamp, Record, build_batch
from mainstem.streams.producers.transaction_markers import TransactionMarker
from mainstem.streams.reading import followed_transactions_driver

pytestmark = virtual_time


def replicas_of(cluster: StreamCluster) -> list[StreamClusterNode]:
    return [node for node in cluster.nodes.values() if node is not cluster.writer]


def read_at(node: StreamClusterNode, *, committed_only: bool = False) -> list[bytes | None]:
    """Everything that a replica shows."""
    reader = node.streams.reader("t", 0)
    offset, found = reader.start_offset, list[bytes | None]()
    while True:
        part = reader.read(offset, max_bytes=10**6, committed_only=committed_only, min_one=True)
        if part is None:
            return found
        found += values_in(part.read())
        offset = part.until_offset


def numbers(count: int) -> list[bytes | None]:
    return [b"%d" % number for number in range(count)]


async def shown(node: StreamClusterNode, expected: list[bytes | None]) -> None:
    """Wait until a replica shows what is expected."""

    def is_shown() -> bool:
        try:
            return read_at(node) == expected
        except Unavailable:
            return False

    await eventually(is_shown)


def transactional(value: bytes, producer: int, sequence: int) -> bytearray:
    return build_batch(
        [Record(0, 1, b"k", value)],
        flags=TRANSACTIONAL_MASK,
        producer=ProducerStamp(producer, 0, sequence),
    )


async def stage(cluster: StreamCluster, batch: bytearray) -> None:
    """Write a batch of a transaction at the writer."""
    reader = cluster.writer.streams.partition("t", 0)
    reader.stage(memoryview(batch), 0, len(batch), verified=True)
    cluster.writer.streams.flush()
    await eventually(lambda: reader.committed == reader.next_offset)


async def mark(cluster: StreamCluster, producer: int, *, commit: bool) -> None:
    reader = cluster.writer.streams.partition("t", 0)
    reader.write_marker(producer, 0, TransactionMarker(commit, 0))
    await eventually(lambda: reader.committed == reader.next_offset)


async def test_replicas_show_what_is_committed_and_nothing_else(tmp_path: Path) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        for number in range(20):
            await cluster.write(b"%d" % number)
        for replica in replicas_of(cluster):
            await shown(replica, numbers(20))
        one, other = replicas_of(cluster)
        for replica in (one, other):  # they get what follows; the writer does not hear of it
            cluster.network.cut(replica.id, cluster.writer.id)
        batch = build_batch([Record(0, 1, b"k", b"20")])
        reader = cluster.writer.streams.partition("t", 0)
        reader.stage(memoryview(batch), 0, len(batch))
        cluster.writer.streams.flush()
        await eventually(lambda: cluster.stored(one, 0) == cluster.stored(other, 0) == numbers(21))
        await asyncio.sleep(0.3)
        assert read_at(one) == read_at(other) == numbers(20)
        cluster.network.heal()
        for replica in (one, other):
            await shown(replica, numbers(21))


async def test_a_reader_that_waits_at_a_replica_is_woken(tmp_path: Path) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        await cluster.write(b"0")
        replica = replicas_of(cluster)[0]
        await shown(replica, numbers(1))
        woken: list[int] = []
        reader = replica.streams.reader("t", 0)
        reader.add_waiter(lambda: woken.append(reader.committed))
        await cluster.write(b"1")
        await eventually(lambda: woken == [2])


async def test_a_replica_knows_open_and_aborted_transactions(tmp_path: Path) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        await cluster.write(b"0")
        early, late = replicas_of(cluster)
        await shown(early, numbers(1))  # follows from here on; the other looks back later
        await stage(cluster, transactional(b"aborted", 7, 0))
        await cluster.write(b"2")
        await eventually(lambda: len(read_at(early)) == 3)
        assert read_at(early, committed_only=True) == numbers(1)
        await mark(cluster, 7, commit=False)
        await stage(cluster, transactional(b"open", 8, 0))
        writer = cluster.writer.streams.partition("t", 0)
        for replica in (early, late):
            await eventually(lambda: all(len(read_at(one)) == 5 for one in (early, late)))
            reader = replica.streams.reader("t", 0)
            assert reader.last_stable == writer.last_stable == 4
            assert reader.aborted_transactions(0, 5) == [(7, 1)]


async def test_what_is_open_is_known_beyond_the_end_of_a_range(tmp_path: Path) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        await stage(cluster, transactional(b"0", 7, 0))
        replica = replicas_of(cluster)[0]
        await shown(replica, numbers(1))
        before = replica.streams.reader("t", 0)
        cluster.writer.streams.roll(STREAM)
        await eventually(lambda: len(cluster.stream.ranges) == 2)
        await eventually(lambda: before.closed is not None)
        await cluster.write(b"1")
        await shown(replica, numbers(2))
        assert replica.streams.reader("t", 0).last_stable == 0
        await mark(cluster, 7, commit=True)
        await eventually(lambda: len(read_at(replica, committed_only=True)) == 3)


async def test_what_is_open_is_not_shown_where_only_the_opening_of_a_range_is_known(
    tmp_path: Path,
) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        await stage(cluster, transactional(b"0", 7, 0))
        replica = replicas_of(cluster)[0]
        cluster.writer.streams.roll(STREAM)
        await eventually(lambda: len(cluster.stream.ranges[0].done) == 3)
        await cluster.write(b"1")
        await eventually(lambda: cluster.stored(replica, 1) == [b"1"])
        await replica.crash()
        cluster.network.cut(cluster.writer.id, replica.id)  # what is committed is not told
        await replica.start()
        assert replica.streams.reader("t", 0).committed == 1
        assert read_at(replica, committed_only=True) == []


async def test_readers_of_a_replica_go_on_when_the_writer_is_dead(tmp_path: Path) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        for number in range(10):
            await cluster.write(b"%d" % number)
        for replica in replicas_of(cluster):
            await shown(replica, numbers(10))
        dead = cluster.writer
        await dead.crash()
        assert all(read_at(node) == numbers(10) for node in replicas_of(cluster))
        await cluster.fence(dead)
        await cluster.write(b"10")
        left = next(node for node in replicas_of(cluster) if node is not dead)
        await shown(left, numbers(11))


async def test_a_long_range_is_looked_through_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed_transactions_driver, "SCAN_BYTES_MAX", 200)

    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        for number in range(30):
            await cluster.write(b"%d" % number)
        replica = replicas_of(cluster)[0]
        await eventually(lambda: cluster.stored(replica, 0) == numbers(30))
        assert len(read_at(replica)) < 30
        await cluster.write(b"30")
        await shown(replica, numbers(31))


async def test_a_replica_that_was_started_again_is_read_from_again(tmp_path: Path) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        for number in range(10):
            await cluster.write(b"%d" % number)
        replica = replicas_of(cluster)[0]
        await replica.crash()
        await replica.start()
        await cluster.write(b"10")
        await shown(replica, numbers(11))


async def test_a_replica_sends_readers_of_what_it_lacks_to_the_writer(tmp_path: Path) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        await cluster.write(b"0")
        replica = replicas_of(cluster)[0]
        await shown(replica, numbers(1))
        reader = replica.streams.reader("t", 0)
        with pytest.raises(MainstemError) as refusal:
            reader.read(2, max_bytes=10**6, committed_only=False, min_one=True)
        assert refusal.value.code is ErrorCode.NOT_WRITER
        with pytest.raises(MainstemError) as refusal:
            replica.streams.partition("t", 0)
        assert refusal.value.code is ErrorCode.NOT_WRITER


async def test_readers_are_sent_to_the_replica_in_their_rack(tmp_path: Path) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        await cluster.write(b"0")
        near, far = replicas_of(cluster)
        nearest = cluster.writer.streams.nearest
        await eventually(lambda: nearest(STREAM, f"rack-{near.id}", 1) == near.id)
        await eventually(lambda: nearest(STREAM, f"rack-{far.id}", 0) == far.id)
        assert nearest(STREAM, f"rack-{cluster.writer.id}", 0) == NO_NODE
        assert nearest(STREAM, "rack of nobody", 0) == NO_NODE
        assert nearest(STREAM, f"rack-{near.id}", 2) == NO_NODE  # it has not got that far
        assert near.streams.nearest(STREAM, f"rack-{far.id}", 0) == NO_NODE  # writers know
        await far.crash()
        await cluster.fence(far)
        assert nearest(STREAM, f"rack-{far.id}", 0) == NO_NODE
