"""Exchanges and queues that are deleted, and declared again, on real files."""

import asyncio
from pathlib import Path

import pytest
from tests.kit.queues import NAMESPACE, QueueNode

from mainstem.broker.api.queues import Overflow, PublishStatus
from mainstem.model.errors import ErrorCode, InvalidRequest, Unavailable


async def orders_to_q(node: QueueNode) -> None:
    """An exchange whose messages all go to one queue."""
    await node.exchange("orders", "fanout")
    await node.declare("q")
    await node.bind("orders", "q")


async def test_messages_of_a_deleted_exchange_stay_and_its_topic_goes_once_they_are_gone(
    tmp_path: Path,
) -> None:
    async with QueueNode(tmp_path) as node:
        await orders_to_q(node)
        await node.send("orders", "", b"1")

        await node.queues.delete_exchange(NAMESPACE, "orders")
        await node.rooms.upkeep.run_once(is_full=True)
        assert node.placement.service.catalogue.topic("orders") is not None
        assert await node.drain("q") == [b"1"]
        for shard in node.rooms.driver.shards:
            await shard.safe()
        await node.rooms.upkeep.run_once(is_full=True)

        assert node.placement.service.catalogue.topic("orders") is None


def test_what_is_declared_again_gets_no_message_of_its_predecessor(tmp_path: Path) -> None:
    async def before() -> None:
        node = await QueueNode(tmp_path).__aenter__()
        await orders_to_q(node)
        for body in (b"1", b"2"):
            await node.send("orders", "", body)
            await node.send("", "q", body)
            node.publish("", "q", body)  # nobody waits for its answer
            await node.queues.delete_queue(NAMESPACE, "q")
            await node.queues.delete_exchange(NAMESPACE, "orders")
            await orders_to_q(node)
        await node.send("orders", "", b"3")
        assert await node.consume("q").wait_for(1) == [b"3"]
        await node.crash()

    async def after() -> None:
        async with QueueNode(tmp_path) as node:
            assert await node.drain("q") == [b"3"]

    asyncio.run(before())
    asyncio.run(after())


async def test_what_was_published_right_before_its_exchange_goes_is_confirmed_and_arrives(
    tmp_path: Path,
) -> None:
    async with QueueNode(tmp_path) as node:
        await orders_to_q(node)

        tokens = node.publish("orders", "", b"1", b"2")
        await node.queues.delete_exchange(NAMESPACE, "orders")

        assert {each.status for each in await node.settled(tokens)} == {PublishStatus.STORED}
        assert await node.consume("q").wait_for(2) == [b"1", b"2"]
        with pytest.raises(InvalidRequest) as refused:
            node.publish("orders", "", b"3")
        assert refused.value.code is ErrorCode.UNKNOWN_EXCHANGE


def test_a_crash_after_an_exchange_went_loses_nothing_that_it_took(tmp_path: Path) -> None:
    async def before() -> None:
        node = await QueueNode(tmp_path).__aenter__()
        await orders_to_q(node)
        stream = node.rooms.driver.hosts.by_name[NAMESPACE].exchanges.streams["orders"][0]
        stream.route_committed = lambda: None  # type: ignore[method-assign] # queues hear nothing
        await node.send("orders", "", b"1")
        await node.queues.delete_exchange(NAMESPACE, "orders")
        await node.crash()

    async def after() -> None:
        async with QueueNode(tmp_path) as node:
            assert await node.consume("q").wait_for(1) == [b"1"]
            await node.rooms.upkeep.run_once(is_full=True)
            assert node.placement.service.catalogue.topic("orders") is not None

    asyncio.run(before())
    asyncio.run(after())


async def test_publishers_that_wait_for_room_are_refused_when_the_exchange_goes(
    tmp_path: Path,
) -> None:
    async with QueueNode(tmp_path) as node:
        await node.exchange("orders", "fanout")
        await node.declare("q", max_length=1, overflow=Overflow.BLOCK)
        await node.bind("orders", "q")
        await node.send("orders", "", b"1")
        [token] = node.publish("orders", "", b"2")
        await asyncio.sleep(0.01)
        assert token not in node.answers

        await node.queues.delete_exchange(NAMESPACE, "orders")

        [answer] = await node.settled([token])
        assert answer.status is PublishStatus.REFUSED


async def test_of_what_was_written_and_not_committed_when_the_stream_went_nothing_is_known(
    tmp_path: Path,
) -> None:
    async with QueueNode(tmp_path) as node:
        await orders_to_q(node)
        stream = node.rooms.driver.hosts.by_name[NAMESPACE].exchanges.streams["orders"][0]
        stream.writer.remove_waiter(stream._on_committed)  # as if other replicas did not answer

        [written] = node.publish("orders", "", b"1")
        stream.batcher._flusher.flush()
        [gathered] = node.publish("orders", "", b"2")
        stream.close(Unavailable(ErrorCode.NOT_WRITER, "another node writes it"))

        unknown, refused = await node.settled([written, gathered])
        assert unknown.status is PublishStatus.UNKNOWN, "another node may have it"
        assert refused.status is PublishStatus.REFUSED
