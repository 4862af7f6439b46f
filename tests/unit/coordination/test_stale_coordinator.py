"""A coordinator that another node may have replaced tells nothing from memory alone.

It may be cut off from the others and still be reached by clients: the seed 902 of ``simulator``
with 240 s had a position go back that way.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.kit import transactions
from tests.kit.groups import GroupNode
from tests.kit.loop import virtual_time
from tests.kit.simulation.coordination.memory_stream import MemoryStream
from tests.unit.coordination import test_consumer_groups_runtime as consumers
from tests.unit.coordination import test_runtime as classic

from mainstem.coordination.groups.requests import (
    HeartbeatRequest,
    JoinAnswer,
    LeavingMember,
    SyncRequest,
)
from mainstem.coordination.groups.service import GroupCoordinator
from mainstem.coordination.transactions.requests import TransactionFilter
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable

pytestmark = virtual_time

LAPSE = Unavailable(ErrorCode.NOT_WRITER, "this node's lease has ended")
SESSION_S = 10.0


def lapse(*streams: MemoryStream) -> None:
    for stream in streams:
        stream.lapsed = lambda: LAPSE


def renew(*streams: MemoryStream) -> None:
    for stream in streams:
        stream.lapsed = lambda: None


def not_coordinator() -> "pytest.RaisesExc[MainstemError]":
    return _refused(ErrorCode.NOT_COORDINATOR)


def loading() -> "pytest.RaisesExc[MainstemError]":
    """To be asked again here: librdkafka asks nobody for positions after NOT_COORDINATOR."""
    return _refused(ErrorCode.COORDINATOR_LOADING)


def _refused(code: ErrorCode) -> "pytest.RaisesExc[MainstemError]":
    return pytest.RaisesExc(
        MainstemError, check=lambda error: error.code is code and error.retriable
    )


async def test_a_position_is_not_told_without_a_lease() -> None:
    node = classic.new_node()
    coordinator = node.start()
    await coordinator.commit_offsets(classic.commit_request(7))
    lapse(*node.streams)
    with loading():
        await classic.position(coordinator)
    renew(*node.streams)
    assert await classic.position(coordinator) == 7


async def test_whoever_waited_for_a_position_is_refused_if_the_lease_ended_meanwhile() -> None:
    node = classic.new_node()
    coordinator = node.start()
    await coordinator.commit_offsets(classic.commit_request(7))
    stream = node.stream_of(coordinator)
    stream.is_synced = False
    committing = asyncio.create_task(coordinator.commit_offsets(classic.commit_request(8)))
    await asyncio.sleep(0)
    fetching = asyncio.create_task(classic.position(coordinator))
    await asyncio.sleep(0.001)
    lapse(stream)
    stream.commit()
    with loading():
        await fetching
    assert await committing == [None]  # replicas have it: nobody had replaced this node


async def test_whoever_waited_for_a_position_is_sent_to_the_node_that_coordinates_now() -> None:
    node = classic.new_node()
    coordinator = node.start()
    await coordinator.commit_offsets(classic.commit_request(7))
    stream = node.stream_of(coordinator)
    stream.is_synced = False
    committing = asyncio.create_task(coordinator.commit_offsets(classic.commit_request(8)))
    await asyncio.sleep(0)
    fetching = asyncio.create_task(classic.position(coordinator))
    await asyncio.sleep(0.001)
    coordinator.shards.closed(coordinator.coordinator_partition("g"))
    stream.commit()
    with not_coordinator():
        await fetching
    await committing


async def test_what_replicas_still_take_is_stored_and_answered_without_a_lease() -> None:
    node = classic.new_node()
    coordinator = node.start()
    await coordinator.commit_offsets(classic.commit_request(7))
    lapse(*node.streams)
    assert await coordinator.commit_offsets(classic.commit_request(8)) == [None]
    joined = await classic.become_stable(coordinator)
    assert joined.generation == 1


async def _sync_again(coordinator: GroupCoordinator, joined: JoinAnswer) -> None:
    await coordinator.sync(
        SyncRequest(group_id="g", generation=joined.generation, member_id=joined.member_id)
    )


async def _heartbeat(coordinator: GroupCoordinator, joined: JoinAnswer) -> None:
    coordinator.heartbeat(
        HeartbeatRequest(group_id="g", generation=joined.generation, member_id=joined.member_id)
    )


async def _heartbeat_of_a_stranger(coordinator: GroupCoordinator, _: JoinAnswer) -> None:
    coordinator.heartbeat(HeartbeatRequest(group_id="g", generation=1, member_id="stranger"))


async def _sync_of_a_stranger(coordinator: GroupCoordinator, _: JoinAnswer) -> None:
    await coordinator.sync(SyncRequest(group_id="g", generation=1, member_id="stranger"))


async def _join_of_a_stranger(coordinator: GroupCoordinator, _: JoinAnswer) -> None:
    await coordinator.join(classic.join_request("stranger"))


async def _leave_of_a_stranger(coordinator: GroupCoordinator, _: JoinAnswer) -> None:
    await coordinator.leave("g", [LeavingMember("stranger", None)])


async def _commit_of_another_generation(coordinator: GroupCoordinator, joined: JoinAnswer) -> None:
    request = classic.commit_request(1, generation=99, member_id=joined.member_id)
    await coordinator.commit_offsets(request)


async def _delete_offsets(coordinator: GroupCoordinator, _: JoinAnswer) -> None:
    await coordinator.delete_offsets("g", [("t", 0)])


async def _delete_group(coordinator: GroupCoordinator, _: JoinAnswer) -> None:
    await coordinator.delete("g")


async def _describe(coordinator: GroupCoordinator, _: JoinAnswer) -> None:
    coordinator.describe("g")


async def _list(coordinator: GroupCoordinator, _: JoinAnswer) -> None:
    coordinator.list()


@pytest.mark.parametrize(
    "ask",
    [
        _sync_again,
        _heartbeat,
        _heartbeat_of_a_stranger,
        _sync_of_a_stranger,
        _join_of_a_stranger,
        _leave_of_a_stranger,
        _commit_of_another_generation,
        _delete_offsets,
        _delete_group,
        _describe,
        _list,
    ],
)
async def test_a_group_is_neither_told_of_nor_refused_from_memory(
    ask: Callable[[GroupCoordinator, JoinAnswer], Awaitable[None]],
) -> None:
    node = classic.new_node()
    coordinator = node.start()
    joined = await classic.become_stable(coordinator)
    lapse(*node.streams)
    with not_coordinator():
        await ask(coordinator, joined)


async def test_a_heartbeat_that_is_refused_for_a_lease_is_a_sign_of_life() -> None:
    node = classic.new_node()
    coordinator = node.start()
    joined = await classic.become_stable(coordinator)
    lapse(*node.streams)
    for _ in range(4):
        await asyncio.sleep(SESSION_S / 2)
        with not_coordinator():
            await _heartbeat(coordinator, joined)
    renew(*node.streams)
    await _heartbeat(coordinator, joined)


async def test_a_member_that_is_assigned_by_the_coordinator_is_sent_away_from_a_stale_one() -> None:
    node = GroupNode({"t": 4})
    coordinator = node.start()
    joined = await consumers.beat(coordinator, "m")
    await consumers.beat(coordinator, "m", joined.epoch)
    lapse(node.stream)
    with not_coordinator():
        await consumers.beat(coordinator, "m", joined.epoch)
    with not_coordinator():
        await consumers.beat(coordinator, "m", joined.epoch + 5)
    with not_coordinator():
        coordinator.consumers.describe("g")
    renew(node.stream)
    await consumers.beat(coordinator, "m", joined.epoch)


async def test_a_classic_member_of_such_a_group_is_sent_away_too() -> None:
    node = GroupNode({"t": 4})
    coordinator = node.start()
    joined = await consumers.beat(coordinator, "m")
    lapse(node.stream)
    request = HeartbeatRequest(group_id="g", generation=joined.epoch, member_id="stranger")
    with not_coordinator():
        coordinator.heartbeat(request)
    with not_coordinator():
        await coordinator.leave("g", [LeavingMember("stranger", None)])
    with not_coordinator():
        await coordinator.sync(SyncRequest(group_id="g", generation=1, member_id="stranger"))


async def test_a_transaction_is_not_looked_at_without_a_lease() -> None:
    async with transactions.started_node() as node:
        producer = await node.init()
        await node.add(producer, transactions.A)
        lapse(node.stream)
        looking = node.transactions.add_partitions(
            transactions.T, *producer, [transactions.A], verify_only=True
        )
        with not_coordinator():
            await looking
        with not_coordinator():  # it is in already: nothing has to be stored
            await node.add(producer, transactions.A)
        with not_coordinator():
            node.transactions.describe(transactions.T)
        with not_coordinator():
            node.transactions.list(TransactionFilter())


async def test_a_producer_is_not_fenced_by_a_coordinator_without_a_lease() -> None:
    async with transactions.started_node() as node:
        producer = await node.init()
        newer = producer._replace(epoch=producer.epoch + 3)  # from whoever coordinates it now
        lapse(node.stream)
        with not_coordinator():
            await node.end(newer)
        with not_coordinator():
            await node.add(newer, transactions.A)


async def test_an_end_that_is_repeated_is_not_answered_from_memory() -> None:
    async with transactions.started_node() as node:
        producer = await node.init()
        await node.add(producer, transactions.A)
        after = await node.end(producer)
        lapse(node.stream)
        with not_coordinator():
            await node.end(producer)
        renew(node.stream)
        assert await node.end(producer) == after


async def test_a_transaction_goes_on_without_a_lease_as_long_as_replicas_take_it() -> None:
    async with transactions.started_node() as node:
        producer = await node.init()
        lapse(node.stream, *node.offsets)
        await node.add(producer, transactions.A)
        await node.commit_offset(producer, 7)
        await node.end(producer)
        with loading():
            await node.offset(stable=True)
        renew(*node.offsets)
        assert await node.offset(stable=True) == 7
