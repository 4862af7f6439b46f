"""Streams that several nodes hold: written, taken over, completed, on real files."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from tests.kit.cluster import STREAM, StreamCluster, StreamClusterNode, batch_of
from tests.kit.loop import virtual_time
from tests.kit.waiting import eventually

from mainstem.broker.api.broker import check_fresh
from mainstem.log.store import LogStore, StoreSettings
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.model.ids import Epoch, NodeId, RangeIndex
from mainstem.model.records.record import ProducerStamp
from mainstem.placement.changes.command_and_fact import Command
from mainstem.placement.changes.commands import SealAndCreate
from mainstem.placement.changes.replication_commands import ReplicaLost
from mainstem.streams.failover.writer_freshness import keep_fresh
from mainstem.streams.writer.stream_driver import StreamWriter

pytestmark = virtual_time


async def test_a_record_is_committed_when_a_majority_holds_it(tmp_path: Path) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        for number in range(20):
            await cluster.write(b"%d" % number)
        expected = [b"%d" % number for number in range(20)]
        assert cluster.values() == expected
        nodes = cluster.nodes.values()
        await eventually(lambda: all(cluster.stored(node, 0) == expected for node in nodes))
        sizes = {tuple(node.streams.sizes("t")) for node in nodes}
        assert len(sizes) == 1
        assert sizes.pop()[0][2] > 0


async def test_a_stream_goes_on_without_a_loss_when_its_writer_is_dead(tmp_path: Path) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        for number in range(10):
            await cluster.write(b"%d" % number)
        dead = cluster.writer
        await dead.crash()
        await cluster.fence(dead)
        for number in range(10, 20):
            await cluster.write(b"%d" % number)
        assert cluster.writer is not dead
        assert cluster.values() == [b"%d" % number for number in range(20)]


async def test_the_last_of_its_replicas_does_not_wait_for_dead_ones(tmp_path: Path) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        for number in range(2):
            await cluster.write(b"%d" % number)
            dead = cluster.writer
            await dead.crash()
            await cluster.fence(dead)
            began = asyncio.get_running_loop().time()
            await eventually(lambda: not cluster.stream.is_taken_over)
            took_s = asyncio.get_running_loop().time() - began
        assert took_s < 2.5
        await cluster.write(b"2")
        assert cluster.values() == [b"0", b"1", b"2"]


async def test_a_node_that_comes_back_is_completed_and_cut_to_what_was_sealed(
    tmp_path: Path,
) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        for number in range(10):
            await cluster.write(b"%d" % number)
        dead = cluster.writer
        await dead.crash()
        await cluster.fence(dead)
        await cluster.write(b"10")
        await dead.start()
        assert cluster.writer is not dead
        sealed = cluster.stream.ranges[0]
        expected = [b"%d" % number for number in range(10)]
        await eventually(lambda: cluster.stored(dead, sealed.index) == expected)
        await eventually(lambda: len(cluster.stream.ranges[0].done) == 3)
        await cluster.write(b"11")
        assert cluster.values() == [b"%d" % number for number in range(12)]


async def test_a_range_rolls_without_a_dead_replica_and_nothing_in_flight_is_lost(
    tmp_path: Path,
) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        await cluster.write(b"0")
        dead = next(node for node in cluster.nodes.values() if node is not cluster.writer)
        await dead.crash()
        writes = [asyncio.create_task(cluster.write(b"%d" % number)) for number in range(1, 30)]
        await asyncio.sleep(0)
        await cluster.fence(dead)
        await asyncio.gather(*writes)
        # Two replicas may have acknowledged everything before the roll has ended.
        await eventually(lambda: dead.id not in cluster.stream.last.replicas)
        assert sorted(cluster.values(), key=lambda value: int(value or b"")) == [
            b"%d" % number for number in range(30)
        ]


async def test_a_full_range_is_followed_by_the_next_under_load(tmp_path: Path) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create(cleanup_policy="compact", segment_bytes="1048576")
        values = [b"%d" % number + bytes(100_000) for number in range(60)]
        for first in range(0, 60, 12):
            await asyncio.gather(*(cluster.write(value) for value in values[first : first + 12]))
        await eventually(lambda: len(cluster.stream.ranges) > 3)
        assert sorted(map(bytes, filter(None, cluster.values()))) == sorted(values)
        nodes = cluster.nodes.values()
        await eventually(lambda: all(len(one.done) == 3 for one in cluster.stream.ranges[:-1]))
        for range_info in cluster.stream.ranges:
            held = [cluster.stored(node, range_info.index) for node in nodes]
            assert held[0] == held[1] == held[2]


async def test_a_stream_is_handed_over_while_it_is_written(tmp_path: Path) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        await cluster.write(b"0")
        former = cluster.writer
        successor = next(node for node in cluster.nodes.values() if node is not former)
        writes = [asyncio.create_task(cluster.write(b"%d" % number)) for number in range(1, 30)]
        await asyncio.sleep(0)
        former.streams.roll(cluster.stream.id, new_writer=successor.id)
        await asyncio.gather(*writes)
        await eventually(lambda: cluster.stream.writer == successor.id)
        await cluster.write(b"30")
        found = [int(value or b"") for value in cluster.values(successor)]
        assert set(found) == set(range(31))


async def test_what_was_acknowledged_by_the_writer_alone_survives_planned_moves(
    tmp_path: Path,
) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        acknowledged: list[int] = []
        refused = 0
        moves = 0
        for number in range(3_000):
            writer = cluster.writer
            if number % 500 == 250:
                successor = next(node for node in cluster.nodes.values() if node is not writer)
                writer.streams.roll(cluster.stream.id, new_writer=successor.id)
                moves += 1
            batch = batch_of(b"%d" % number)
            try:  # as a produce request with acks=1 does
                partition = writer.streams.partition("t", 0)
                base = partition.stage(memoryview(batch), 0, len(batch))
                writer.streams.flush()
                refusal = partition.failure(base)
            except Unavailable as error:
                refusal = error
            if refusal is None:
                acknowledged.append(number)
            else:
                assert refusal.code is ErrorCode.NOT_WRITER
                refused += 1
            await asyncio.sleep(0.0005 if number % 3 else 0)
        assert moves == 6
        assert len(acknowledged) > 1_000
        await eventually(lambda: cluster.writer.streams.partition("t", 0).closed is None)
        await cluster.write(b"99999")
        found = {int(value or b"") for value in cluster.values(cluster.writer)}
        assert set(acknowledged) <= found


async def test_a_move_waits_for_replicas_and_is_given_up_when_they_do_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.streams.writer.replication_driver.HAND_OVER_WAIT_S", 0.3)

    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        await cluster.write(b"0", stamp=ProducerStamp(7, 0, 0))
        writer = cluster.writer
        successor = next(node for node in cluster.nodes.values() if node is not writer)
        cluster.network.isolate(writer.id)
        waiting = asyncio.create_task(writer.streams.append("t", 0, batch_of(b"1")))
        await asyncio.sleep(0.01)
        writer.streams.roll(cluster.stream.id, new_writer=successor.id)
        await asyncio.sleep(0.05)
        partition, batch = writer.streams.partition("t", 0), batch_of(b"2")
        base = partition.stage(memoryview(batch), 0, len(batch))
        writer.streams.flush()
        refusal = partition.failure(base)
        assert refusal is not None
        assert refusal.code is ErrorCode.NOT_WRITER
        behind = batch_of(b"4", ProducerStamp(7, 0, 2))  # the one before it was refused, too
        with pytest.raises(Unavailable) as judged:
            partition.stage(memoryview(behind), 0, len(behind))
        assert judged.value.code is ErrorCode.NOT_WRITER, "no final word on its sequence"
        await eventually(lambda: not writer.rolls._rolling)
        assert cluster.stream.writer == writer.id
        cluster.network.heal()
        await waiting
        await cluster.write(b"3")
        assert cluster.values() == [b"0", b"1", b"3"]


async def test_a_writer_answers_nothing_while_the_outcome_of_a_hand_over_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new writer may be ahead long before a node whose disk stalls learns of it."""

    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        await cluster.write(b"0")
        former = cluster.writer
        stream = former.streams.partition("t", 0)
        assert isinstance(stream, StreamWriter)
        keep_fresh(stream, lambda: True)
        check_fresh(stream)
        held, answered = asyncio.Event(), asyncio.Event()
        submit = cluster.placement.service.submit

        async def slow(command: Command[Any]) -> Any:
            if isinstance(command, SealAndCreate):
                held.set()
                await answered.wait()
            return await submit(command)

        monkeypatch.setattr(cluster.placement.service, "submit", slow)
        successor = next(node for node in cluster.nodes.values() if node is not former)
        former.streams.roll(cluster.stream.id, new_writer=successor.id)
        await eventually(held.is_set)
        with pytest.raises(Unavailable) as refused:
            check_fresh(stream)
        assert refused.value.code is ErrorCode.NOT_WRITER
        answered.set()
        await eventually(lambda: cluster.stream.writer == successor.id)


async def test_a_deposed_writer_that_lives_on_acknowledges_nothing(tmp_path: Path) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        await cluster.write(b"0")
        former = cluster.writer
        cluster.network.isolate(former.id)
        for listener in former._listeners:  # its catalogue hears nothing, either
            cluster.placement.service.replay.listeners.remove(listener)
        lost = asyncio.create_task(former.streams.append("t", 0, batch_of(b"lost")))
        await cluster.fence(former)
        await cluster.write(b"1")
        await asyncio.sleep(0.1)
        assert not lost.done()
        cluster.network.heal()
        with pytest.raises(MainstemError):
            await asyncio.wait_for(lost, 5)
        assert cluster.values() == [b"0", b"1"]
        former._listeners.clear()


async def test_who_waits_for_a_writer_of_an_earlier_epoch_is_answered(tmp_path: Path) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        await cluster.write(b"0")
        former = cluster.writer
        cluster.network.isolate(former.id)
        for listener in former._listeners:  # its catalogue hears nothing, either
            cluster.placement.service.replay.listeners.remove(listener)
        lost = asyncio.create_task(former.streams.append("t", 0, batch_of(b"lost")))
        await cluster.fence(former)
        await cluster.write(b"1")
        await cluster.unfence(former)
        cluster.writer.streams.roll(STREAM, new_writer=former.id)
        await eventually(lambda: cluster.writer is former)
        cluster.placement.service.replay.listeners += former._listeners
        former.streams.lifecycle.resync()  # a snapshot with all of it
        with pytest.raises(MainstemError):
            await asyncio.wait_for(lost, 1)
        cluster.network.heal()
        assert await cluster.write(b"2") == 2


async def test_a_batch_that_is_asked_after_once_its_stream_is_closed_is_answered(
    tmp_path: Path,
) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        partition = cluster.writer.streams.partition("t", 0)
        batch = batch_of(b"0")
        base = partition.stage(memoryview(batch), 0, len(batch))
        cluster.writer.streams.flush()
        partition.close(Unavailable(ErrorCode.NOT_WRITER, "deposed"))
        with pytest.raises(Unavailable):
            partition.when_written(base, lambda _: None)


async def test_a_deposed_writer_does_not_judge_a_producer_that_wrote_elsewhere(
    tmp_path: Path,
) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        await cluster.write(b"0", stamp=ProducerStamp(7, 0, 0))
        former = cluster.writer
        cluster.network.isolate(former.id)
        for listener in former._listeners:  # its catalogue hears nothing, either
            cluster.placement.service.replay.listeners.remove(listener)
        await cluster.fence(former)
        await cluster.write(b"1", stamp=ProducerStamp(7, 0, 1))
        for _ in range(3):
            await asyncio.sleep(0.01)
            with pytest.raises(MainstemError) as refusal:
                await former.streams.append("t", 0, batch_of(b"2", ProducerStamp(7, 0, 2)))
            assert refusal.value.code is ErrorCode.NOT_WRITER
        await cluster.write(b"2", stamp=ProducerStamp(7, 0, 2))
        assert cluster.values() == [b"0", b"1", b"2"]
        former._listeners.clear()


async def test_a_gap_is_told_by_a_writer_that_is_sure_to_be_the_writer(tmp_path: Path) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        await cluster.write(b"0", stamp=ProducerStamp(7, 0, 0))
        with pytest.raises(MainstemError) as refusal:
            await cluster.write(b"2", stamp=ProducerStamp(7, 0, 2))
        assert refusal.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE
        lapse = Unavailable(ErrorCode.NOT_WRITER, "the lease has ended")
        cluster.writer.streams.partition("t", 0).lapsed = lambda: lapse
        with pytest.raises(Unavailable) as lapsed:
            await cluster.writer.streams.append("t", 0, batch_of(b"2", ProducerStamp(7, 0, 2)))
        assert lapsed.value is lapse


async def test_a_replica_that_lost_its_power_is_in_limbo_until_it_is_whole(tmp_path: Path) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create(flush_policy="written")
        await cluster.write(b"0")
        node = next(node for node in cluster.nodes.values() if node is not cluster.writer)
        index = cluster.stream.last.index
        await node.crash()
        node.boot = "second boot"
        # The first process of the second boot dies before it knows what it holds.
        early = LogStore(node.folder, StoreSettings(boot_id=node.boot), cluster.clock)
        os.close(early._lock)
        await node.start()
        assert is_in_limbo(node, index)
        await node.crash()
        await node.start()
        assert is_in_limbo(node, index)
        cluster.writer.streams.roll(cluster.stream.id)
        await eventually(lambda: len(cluster.stream.ranges[0].done) == 3)
        await eventually(lambda: not is_in_limbo(node, index))
        await node.crash()
        await node.start()
        assert not is_in_limbo(node, index)


def is_in_limbo(node: StreamClusterNode, index: RangeIndex) -> bool:
    roles = node.streams._roles
    assert roles is not None
    held = roles.replicas.registry.held(STREAM, index)
    return held is not None and held.machine.limbo


async def test_a_range_that_goes_while_a_promise_is_stored_does_not_end_the_node(
    tmp_path: Path,
) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        await cluster.write(b"0")
        node = next(node for node in cluster.nodes.values() if node is not cluster.writer)
        assert node.streams._roles is not None
        held = node.streams._roles.replicas.registry.held(STREAM, cluster.stream.last.index)
        assert held is not None
        (folder,) = node.folder.glob("topics/t~*")
        folder.rename(folder.with_name(f"{folder.name}.deleted"))
        folder.touch()  # nothing can be stored there
        fencing = asyncio.create_task(held.fence(Epoch(9)))
        await asyncio.sleep(0)
        held.log.close(discard=True)
        with pytest.raises(Unavailable):
            await asyncio.wait_for(fencing, 5)
        assert node.fatal == []
        folder.unlink()


async def test_a_seal_that_nobody_decides_does_not_keep_a_node_from_stopping(
    tmp_path: Path,
) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        await cluster.write(b"0")
        writer = cluster.writer
        service, decided = cluster.placement.service, asyncio.Event()
        submit = service.submit

        async def never(_command: object) -> None:
            await decided.wait()

        service.submit = never  # type: ignore[assignment, method-assign]
        writer.streams.roll(STREAM)
        await eventually(lambda: bool(writer.rolls._rolling))
        await asyncio.wait_for(writer.rolls.settled(0.05), 5)
        assert writer.rolls._rolling == {}
        service.submit = submit  # type: ignore[method-assign]
        assert writer.fatal == []


async def test_what_the_catalogue_says_while_a_node_stops_is_for_others(tmp_path: Path) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        await cluster.write(b"one")
        stopping = next(node for node in cluster.nodes.values() if node is not cluster.writer)
        await stopping.commits.drain()
        stopping.streams.lifecycle.close()
        stopping.commits.close()
        await cluster.write(b"two")
        await cluster.fence(stopping)
        await eventually(lambda: len(cluster.stream.ranges) == 2)
        assert cluster.values() == [b"one", b"two"]
        assert stopping.fatal == []
        stopping.is_up = False
        os.close(stopping.store._lock)


async def test_a_stream_goes_on_when_its_heir_may_not_have_it(tmp_path: Path) -> None:
    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        await cluster.write(b"0")
        writer = cluster.writer
        writer.streams.roll(cluster.stream.id, new_writer=NodeId(99))
        await eventually(lambda: cluster.stream.last.index == 1)
        await cluster.write(b"1")
        assert cluster.writer is writer
        assert cluster.values() == [b"0", b"1"]


@pytest.mark.parametrize("is_in_flight", [False, True])
async def test_a_writer_reads_its_sealed_range_though_it_is_to_be_copied_anew(
    tmp_path: Path, *, is_in_flight: bool
) -> None:
    """Other nodes know of the seal first: the writer's disk stalls, or it hears nothing."""

    async with StreamCluster(tmp_path) as cluster:
        await cluster.create()
        await cluster.write(b"0")
        writer = cluster.writer
        await eventually(lambda: all(cluster.stored(n, 0) for n in cluster.nodes.values()))
        service, answered = cluster.placement.service, asyncio.Event()
        submit = service.submit

        async def late(command: Command[Any]) -> object:
            answer = await submit(command)
            if isinstance(command, SealAndCreate):
                await answered.wait()
            return answer

        service.submit = late  # type: ignore[assignment, method-assign]
        if is_in_flight:
            cluster.network.isolate(writer.id)
        write = asyncio.create_task(cluster.write(b"1"))
        await asyncio.sleep(0)
        writer.streams.roll(STREAM)
        await eventually(lambda: cluster.stream.last.index == 1)
        cluster.network.heal()
        await eventually(lambda: len(set(cluster.stream.ranges[0].done) - {writer.id}) == 2)
        await submit(ReplicaLost(STREAM, RangeIndex(0), writer.id))
        await asyncio.sleep(0.05)
        answered.set()
        assert await write == 1
        assert await cluster.write(b"2") == 2
        await eventually(lambda: len(cluster.stream.ranges[0].done) == 3)
        assert cluster.values() == [b"0", b"1", b"2"]
        assert cluster.writer is writer
        assert cluster.stream.epoch == 0
        assert writer.fatal == []
