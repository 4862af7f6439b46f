"""Queues of a node whose lease has ended: nothing is delivered or answered from memory."""

import asyncio
from pathlib import Path

import pytest
from tests.kit.queues import NAMESPACE, QueueNode

from mainstem.broker.api.queues import ACKNOWLEDGE, PublishStatus, QueueSettings
from mainstem.model.errors import ErrorCode, InvalidRequest, Unavailable

LAPSE = Unavailable(ErrorCode.NOT_WRITER, "this node's lease has ended")


def lapse(node: QueueNode) -> None:
    """The lease of the node ends."""
    for shard in node.rooms.driver.shards:
        shard.live.stream.lapsed = lambda: LAPSE  # type: ignore[misc]


def renew(node: QueueNode) -> None:
    """The node has a lease again."""
    for shard in node.rooms.driver.shards:
        shard.live.stream.lapsed = lambda: None  # type: ignore[misc]


async def test_deliveries_wait_for_the_lease_and_come_in_order(tmp_path: Path) -> None:
    async with QueueNode(tmp_path) as node:
        await node.declare("q")
        inbox = node.consume("q")
        lapse(node)

        await node.send("", "q", b"1")
        await node.send("", "q", b"2")
        await asyncio.sleep(0.2)
        assert inbox.bodies == []

        renew(node)
        await node.send("", "q", b"3")
        assert await inbox.wait_for(3) == [b"1", b"2", b"3"]
        assert inbox.endings == []


async def test_deliveries_go_on_by_themselves_once_the_lease_is_renewed(tmp_path: Path) -> None:
    async with QueueNode(tmp_path) as node:
        await node.declare("q")
        inbox = node.consume("q")
        lapse(node)
        await node.send("", "q", b"1")
        renew(node)
        assert await inbox.wait_for(1) == [b"1"]


async def test_what_waits_for_the_lease_returns_when_its_consumer_cancels(tmp_path: Path) -> None:
    async with QueueNode(tmp_path) as node:
        await node.declare("q")
        inbox = node.consume("q")
        lapse(node)
        await node.send("", "q", b"1")
        inbox.subscription.cancel()
        renew(node)
        assert await node.consume("q").wait_for(1) == [b"1"]
        assert inbox.bodies == []


async def test_what_waits_for_the_lease_is_dropped_when_queues_move(tmp_path: Path) -> None:
    async with QueueNode(tmp_path) as node:
        await node.declare("q")
        inbox = node.consume("q")
        lapse(node)
        await node.send("", "q", b"1")
        driver = node.rooms.driver
        driver.stream_lost(driver.shards[0].live.stream.id)  # type: ignore[attr-defined]
        assert len(inbox.endings) == 1
        await asyncio.sleep(0.2)
        assert inbox.bodies == []


async def test_a_settlement_is_stored_although_the_lease_has_ended(tmp_path: Path) -> None:
    async with QueueNode(tmp_path) as node:
        await node.declare("q")
        inbox = node.consume("q")
        await node.send("", "q", b"1")
        await inbox.wait_for(1)
        lapse(node)
        inbox.subscription.settle(inbox.numbers, ACKNOWLEDGE)
        await inbox.subscription.settled()
        renew(node)
        assert node.queues.admin.describe(NAMESPACE, "q").total == 0


async def test_nothing_is_answered_from_memory_without_a_lease(tmp_path: Path) -> None:
    async with QueueNode(tmp_path) as node:
        await node.declare("q")
        lapse(node)
        queues = node.queues
        with pytest.raises(Unavailable):
            await queues.get(NAMESPACE, "q", connection="c")
        for name in ("q", "no-such"):
            with pytest.raises(Unavailable):
                queues.status(NAMESPACE, name, connection="c")
        with pytest.raises(Unavailable):
            await queues.declare_queue(NAMESPACE, "q", QueueSettings(), connection="c")
        with pytest.raises(Unavailable):
            await node.exchange("orders", "direct")
        with pytest.raises(Unavailable):
            queues.admin.describe(NAMESPACE, "q")
        with pytest.raises(Unavailable):
            list(queues.admin.queues(NAMESPACE))

        renew(node)
        assert queues.status(NAMESPACE, "q", connection="c").messages == 0
        with pytest.raises(InvalidRequest):
            queues.status(NAMESPACE, "no-such", connection="c")


async def test_no_message_is_called_unroutable_without_a_lease(tmp_path: Path) -> None:
    async with QueueNode(tmp_path) as node:
        await node.declare("q")
        lapse(node)
        [to_nobody] = await node.send("", "nobody", b"1")
        [to_no_exchange] = await node.send("no-such", "k", b"2")
        assert to_nobody.status is PublishStatus.REFUSED
        assert to_no_exchange.status is PublishStatus.REFUSED

        renew(node)
        [to_nobody] = await node.send("", "nobody", b"1")
        assert to_nobody.status is PublishStatus.NOBODY
