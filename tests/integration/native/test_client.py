"""The Python client for queues against a real node."""

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest
from tests.integration.several import node_under_test

from mainstem import connect
from mainstem.client.native.connection import NativeSettings
from mainstem.client.native.message import outgoing
from mainstem.client.native.queue import Queue
from mainstem.client.queues import Queues, QueueSettings
from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.testing.local_node import LocalNode

ARGUMENTS = ("--set", "native.enabled=true")
QUICK = NativeSettings(reconnect_ms_min=50, reconnect_ms_max=500)


@pytest.fixture(scope="module")
def node() -> Iterator[LocalNode]:
    with node_under_test(ARGUMENTS) as node:
        yield node


async def taken(queue: Queue, count: int) -> list[bytes]:
    """So many messages, acknowledged."""
    values = []
    async with asyncio.timeout(20):
        async for message in queue.consume():
            with message:
                values.append(message.value)
            if len(values) == count:
                break
    return values


async def test_what_is_published_is_consumed_in_order(node: LocalNode) -> None:
    async with connect(node.native) as queues:
        queue = await queues.declare("in-order")
        assert await queue.publish_many(b"%d" % n for n in range(3_000)) == 3_000
        assert await taken(queue, 3_000) == [b"%d" % n for n in range(3_000)]
        await asyncio.sleep(0.2)
        assert (await queue.info()).total == 0


@pytest.mark.parametrize("compression", [(), ("gzip",), ("brotli", "gzip")])
async def test_everything_that_is_said_about_a_message_arrives(
    node: LocalNode, compression: tuple[str, ...]
) -> None:
    async with connect(node.native, NativeSettings(compression=compression)) as queues:
        queue = await queues.declare()
        await queue.publish(
            b"\x00\xff" * 5_000,
            headers=[("a", b"1"), ("a", b"2"), ("none", None)],
            content_type="application/octet-stream",
            correlation_id="c",
            reply_to="r",
            message_id="m",
            priority=7,
            timestamp_ms=1_700_000_000_000,
            ttl_ms=60_000,
        )
        message = await queue.get()
        assert message is not None
        found = message.properties
        message.ack()
        assert message.value == b"\x00\xff" * 5_000
        assert message.headers == (("a", b"1"), ("a", b"2"), ("none", None))
        assert (found.content_type, found.correlation_id) == ("application/octet-stream", "c")
        assert (found.reply_to, found.message_id, found.priority) == ("r", "m", 7)
        assert found.timestamp_ms == 1_700_000_000_000
        assert found.expires_ms is not None
        await queue.delete()


async def test_an_error_in_the_block_sends_a_message_back(node: LocalNode) -> None:
    async with connect(node.native) as queues:
        settings = QueueSettings(retry_ms=0)
        queue = await queues.declare("again", settings)
        await queue.publish(b"work")
        attempts = []
        async for message in queue.consume():
            attempts.append((message.attempt, message.failures))
            if len(attempts) == 3:
                message.ack()
                break
            with pytest.raises(ZeroDivisionError):
                async with message:
                    raise ZeroDivisionError
        assert attempts == [(1, 0), (2, 1), (3, 2)]


async def test_what_fails_too_often_is_a_dead_letter_and_can_be_sent_back(node: LocalNode) -> None:
    async with connect(node.native) as queues:
        graveyard = await queues.declare("graveyard")
        settings = QueueSettings(
            retry_ms=0,
            max_attempts=2,
            dead_letter_exchange="",
            dead_letter_key="graveyard",
        )
        queue = await queues.declare("mortal", settings)
        await queue.publish(b"doomed")
        async with queue.consume() as messages:
            (await messages.next(5_000)).nack()
            (await messages.next(5_000)).nack()
        async with graveyard.consume() as letters:
            letter = await letters.next(10_000)
            assert letter.value == b"doomed"
            letter.nack(failed=False)
        assert await graveyard.move() == 1
        assert await taken(queue, 1) == [b"doomed"]


async def test_what_fails_too_often_is_kept_in_a_queue_of_its_own_by_default(
    node: LocalNode,
) -> None:
    async with connect(node.native) as queues:
        queue = await queues.declare("careful", QueueSettings(retry_ms=0))
        await queue.publish(b"poison")
        async with queue.consume() as messages:
            for _ in range(3):
                (await messages.next(10_000)).nack()
        dead = await queues.declare("careful.dead")
        async with dead.consume() as letters:
            letter = await letters.next(10_000)
            assert letter.value == b"poison"
            letter.nack(failed=False)
        assert await dead.move() == 1
        assert await taken(queue, 1) == [b"poison"]
        # Declared again it is the same, and so is a queue that never had such a place.
        await queues.declare("careful", QueueSettings(retry_ms=0))
        await queues.declare("careless", QueueSettings(max_attempts=3), preset="plain")
        assert "careless.dead" not in [each.name for each in await queues.list_queues()]


async def test_messages_go_by_bindings(node: LocalNode) -> None:
    async with connect(node.native) as queues:
        exchange = await queues.declare_exchange("events", "topic")
        eu, every = await queues.declare("events-eu"), await queues.declare("events-all")
        await exchange.bind(eu, "eu.*")
        await exchange.bind(every, "#")
        assert await exchange.publish(b"1", key="eu.paid")
        assert await exchange.publish(b"2", key="us.paid")
        assert await taken(every, 2) == [b"1", b"2"]
        assert await taken(eu, 1) == [b"1"]
        await exchange.unbind(every, "#")
        assert not await exchange.publish(b"3", key="us.paid")
        shown = {(b.exchange, b.to, b.key) for b in await queues.list_bindings()}
        assert ("events", "events-eu", "eu.*") in shown
        await exchange.delete()


async def test_a_window_bounds_what_is_in_hand(node: LocalNode) -> None:
    async with connect(node.native) as queues:
        queue = await queues.declare("windowed")
        await queue.publish_many([b"%d" % n for n in range(10)])
        async with queue.consume(window=3) as messages:
            held = [await messages.next(5_000) for _ in range(3)]
            assert (await queue.info()).unsettled == 3
            with pytest.raises(TimeoutError):
                await messages.next(200)
            held[0].ack()
            assert (await messages.next(5_000)).value == b"3"
        info = await queue.info()
        assert (info.ready, info.unsettled) == (9, 0)


async def test_without_acknowledgements_credit_keeps_memory_small(node: LocalNode) -> None:
    async with connect(node.native) as queues:
        queue = await queues.declare("quick")
        await queue.publish_many([b"%d" % n for n in range(500)])
        values = []
        async for message in queue.consume(window=20, no_ack=True):
            values.append(message.value)
            if len(values) == 500:
                break
        assert values == [b"%d" % n for n in range(500)]


async def test_refusals_are_told_with_code_cause_object_and_remedy(node: LocalNode) -> None:
    async with connect(node.native) as queues:
        with pytest.raises(MainstemError) as nowhere:
            await queues.queue("not there").publish(b"x")
        assert nowhere.value.code is ErrorCode.UNKNOWN_QUEUE
        await queues.declare("fixed")
        with pytest.raises(MainstemError) as differs:
            await queues.declare("fixed", QueueSettings(max_length=5))
        assert differs.value.code is ErrorCode.DECLARATION_DIFFERS
        assert differs.value.subject == "fixed"
        assert differs.value.remedy
        await queues.declare("fixed", QueueSettings(max_length=5), policy="override")
        assert (await queues.queue("fixed").info()).settings.max_length == 5


async def test_a_full_queue_refuses_and_nothing_is_said_to_be_stored(node: LocalNode) -> None:
    async with connect(node.native) as queues:
        queue = await queues.declare("small", QueueSettings(max_length=3))
        with pytest.raises(MainstemError):
            await queue.publish_many([b"%d" % n for n in range(10)])
        stored = (await queue.info()).total
        assert 0 < stored < 10


async def test_deleting_a_queue_ends_those_who_consume_it(node: LocalNode) -> None:
    async with connect(node.native) as queues:
        queue = await queues.declare("doomed")
        async with queue.consume() as messages:
            await queue.delete()
            with pytest.raises(MainstemError) as ended:
                await messages.next(5_000)
        assert ended.value.code is ErrorCode.UNKNOWN_QUEUE


async def test_an_exclusive_queue_is_for_its_connection_and_goes_with_it(node: LocalNode) -> None:
    async with connect(node.native) as other:
        async with connect(node.native) as queues:
            mine = await queues.declare("mine", QueueSettings(exclusive=True))
            with pytest.raises(MainstemError) as locked:
                await other.queue("mine").get()
            assert locked.value.code is ErrorCode.RESOURCE_LOCKED
            await mine.publish(b"x")
        await asyncio.sleep(0.3)
        assert "mine" not in {queue.name for queue in await other.list_queues()}


async def test_a_delayed_message_comes_later(node: LocalNode) -> None:
    async with connect(node.native) as queues:
        queue = await queues.declare("later")
        await queue.publish_many([outgoing(b"slow", {"delay_ms": 600}), b"fast"])
        assert await taken(queue, 2) == [b"fast", b"slow"]


async def test_topics_are_appended_to_and_read(node: LocalNode) -> None:
    async with connect(node.native) as queues:
        log = queues.topics
        await log.create("readings", partitions=2)
        place = await log.append("readings", b"1", key=b"k", headers={"a": b"b"})
        found = await log.read("readings", partition=place.partition)
        assert [(r.offset, r.message.value) for r in found.records] == [(0, b"1")]
        assert found.records[0].message.headers == [("a", b"b")]
        waiting = asyncio.create_task(
            log.read("readings", partition=place.partition, offset=1, wait_ms=10_000)
        )
        await asyncio.sleep(0.1)
        await log.append("readings", b"2", key=b"k")
        assert [r.message.value for r in (await waiting).records] == [b"2"]
        assert any(t.name == "readings" and t.partitions == 2 for t in await log.list_topics())
        await log.delete("readings")


async def test_after_a_kill_exactly_what_was_not_acknowledged_comes_again_in_order() -> None:
    with LocalNode(arguments=ARGUMENTS) as node:
        async with connect(node.native, QUICK) as queues:
            queue = await queues.declare("lasting", QueueSettings(lease_ms=600_000))
            await queue.publish_many([b"%d" % n for n in range(200)])
            assert len(await taken(queue, 50)) == 50
            async with queue.consume(window=10) as messages:
                held = [await messages.next(5_000) for _ in range(10)]
                await asyncio.sleep(0.3)  # acknowledgements are on their way, not confirmed
                await asyncio.to_thread(node.kill9)
                await asyncio.to_thread(node.start)
                held[0].ack()  # of the connection that is gone: it comes again
                await queue.publish(b"after")
                again: list[bytes] = []
                while len(again) < 151:
                    with await messages.next(20_000) as message:
                        again.append(message.value)
            assert again == [*(b"%d" % n for n in range(50, 200)), b"after"]


async def test_queues_that_die_with_a_connection_are_declared_again() -> None:
    with LocalNode(arguments=ARGUMENTS) as node:
        async with connect(node.native, QUICK) as queues:
            replies = await queues.declare("", QueueSettings(exclusive=True))
            async with replies.consume() as messages:
                await asyncio.to_thread(node.kill9)
                await asyncio.to_thread(node.start)
                await replies.publish(b"answer")
                assert (await messages.next(20_000)).value == b"answer"


async def test_closing_the_client_ends_every_iteration(node: LocalNode) -> None:
    async with connect(node.native) as queues:
        queue = await queues.declare("idle")

        async def consume() -> int:
            return len([message async for message in queue.consume()])

        working = asyncio.create_task(consume())
        await asyncio.sleep(0.1)
    assert await working == 0


async def test_a_stopping_node_says_goodbye_and_the_client_comes_back() -> None:
    with LocalNode(arguments=ARGUMENTS) as node:
        async with connect(node.native, QUICK) as queues:
            queue = await queues.declare("patient")
            async with queue.consume() as messages:
                await asyncio.to_thread(node.stop)
                await asyncio.to_thread(node.start)
                await queue.publish(b"again")
                assert (await messages.next(20_000)).value == b"again"


async def test_a_node_that_says_nothing_is_taken_for_gone_and_found_again() -> None:
    with LocalNode(arguments=ARGUMENTS) as node:
        settings = NativeSettings(
            heartbeat_ms=1_000, reconnect_ms_min=50, reconnect_ms_max=100, connect_timeout_ms=500
        )
        async with connect(node.native, settings) as queues:
            queue = await queues.declare("frozen")
            async with queue.consume() as messages:
                os.kill(node.pid, signal.SIGSTOP)
                try:
                    await asyncio.sleep(3.5)
                    assert not queues.is_connected
                finally:
                    os.kill(node.pid, signal.SIGCONT)
                await queue.publish(b"thawed")
                assert (await messages.next(20_000)).value == b"thawed"


async def test_a_client_that_never_reached_a_node_is_told_at_once() -> None:
    async def attempt() -> None:
        async with Queues("127.0.0.1:1"):
            raise AssertionError

    with pytest.raises(MainstemError) as unreachable:
        await attempt()
    assert unreachable.value.retriable
