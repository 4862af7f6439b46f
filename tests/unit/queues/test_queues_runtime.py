"""Queues in service, on real files: publish, consume, settle, and what survives."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.kit.queues import NAMESPACE, QueueNode
from tests.kit.waiting import eventually

from mainstem.broker.api.queues import (
    ACKNOWLEDGE,
    REJECT,
    RETURN,
    Binding,
    ConsumeRequest,
    ConsumerWindow,
    Destination,
    Exchange,
    ExchangeKind,
    ExchangeView,
    Overflow,
    PublishStatus,
    Routing,
    death_history_of,
)
from mainstem.log.range_log import RangeLog
from mainstem.model.errors import ErrorCode, InvalidRequest, Unavailable
from mainstem.model.message import Message
from mainstem.model.records.record import Record, build_batch
from mainstem.queues.engine.shard import ITEM_BYTES


async def test_messages_are_confirmed_and_delivered_in_order(tmp_path: Path) -> None:
    async with QueueNode(tmp_path) as node:
        await node.declare("q")
        inbox = node.consume("q")

        answers = await node.send("", "q", b"1", b"2", b"3")

        assert [(each.status, each.is_routed) for each in answers] == [
            (PublishStatus.STORED, True)
        ] * 3
        assert await inbox.wait_for(3) == [b"1", b"2", b"3"]
        assert {each.exchange for each in inbox.deliveries} == {""}


def test_what_was_acknowledged_is_gone_and_the_rest_comes_back_after_a_kill(tmp_path: Path) -> None:
    async def before() -> None:
        node = await QueueNode(tmp_path).__aenter__()
        await node.declare("q")
        await node.send("", "q", b"1", b"2", b"3", b"4")
        inbox = node.consume("q", window=3)
        await inbox.wait_for(3)
        inbox.subscription.settle(inbox.numbers[1:2], ACKNOWLEDGE)
        await inbox.wait_for(4)
        await node.rooms.driver.shards[0].safe()
        for shard in node.rooms.driver.shards:
            await shard.safe()
        await node.crash()

    async def after() -> None:
        async with QueueNode(tmp_path) as node:
            inbox = node.consume("q")
            assert await inbox.wait_for(3) == [b"1", b"3", b"4"]
            assert [each.redelivered for each in inbox.deliveries] == [True, True, True]

    asyncio.run(before())
    asyncio.run(after())


def test_a_confirmed_message_that_no_queue_had_yet_arrives_after_a_kill(tmp_path: Path) -> None:
    async def before() -> None:
        node = await QueueNode(tmp_path).__aenter__()
        await node.exchange("orders", "topic")
        await node.declare("q")
        await node.bind("orders", "q", "eu.*")
        await node.send("orders", "eu.1", b"1")
        # Queues hear nothing any more, as if the node died right after the commit.
        await node.rooms.driver.stop()
        batch = build_batch([Record(0, 1, b"eu.2", b"2"), Record(0, 1, b"us.3", b"3")])
        await node.streams.append("orders", 0, batch)
        await node.crash()

    async def after() -> None:
        async with QueueNode(tmp_path) as node:
            assert await node.consume("q").wait_for(2) == [b"1", b"2"]

    asyncio.run(before())
    asyncio.run(after())


def test_a_binding_sees_no_message_from_before_it_also_after_a_kill(tmp_path: Path) -> None:
    async def before() -> None:
        node = await QueueNode(tmp_path).__aenter__()
        await node.exchange("orders", "fanout")
        await node.declare("late")
        await node.declare("early")
        await node.bind("orders", "early")
        await node.send("orders", "", b"old")
        await node.bind("orders", "late")
        await node.send("orders", "", b"new")
        await node.crash()

    async def after() -> None:
        async with QueueNode(tmp_path) as node:
            assert await node.consume("early").wait_for(2) == [b"old", b"new"]
            assert await node.consume("late").wait_for(1) == [b"new"]

    asyncio.run(before())
    asyncio.run(after())


async def test_records_of_a_kafka_client_reach_the_queues_of_an_exchange(tmp_path: Path) -> None:
    async with QueueNode(tmp_path) as node:
        await node.exchange("orders", "topic")
        await node.declare("q")
        await node.bind("orders", "q", "eu.#")
        inbox = node.consume("q")
        await node.send("orders", "eu.1", b"first")

        headers = (("colour", b"red"),)
        batch = build_batch([Record(0, 5, b"eu.2", b"second", headers)])
        await node.streams.append("orders", 0, batch)
        await node.send("orders", "eu.3", b"third")

        assert await inbox.wait_for(3) == [b"first", b"second", b"third"]
        assert inbox.deliveries[1].message == Message(b"eu.2", b"second", headers, 5)
        assert inbox.deliveries[1].exchange == "orders"


async def test_a_message_that_nobody_wants_is_told_apart(tmp_path: Path) -> None:
    async with QueueNode(tmp_path) as node:
        await node.declare("q")
        await node.exchange("orders", "direct")

        [lost] = await node.send("", "nobody", b"1")
        [stored] = await node.send("orders", "nobody", b"2")
        with pytest.raises(InvalidRequest) as unknown:
            node.publish("no-such", "k", b"3")

        assert (lost.status, lost.is_routed) == (PublishStatus.NOBODY, False)
        assert (stored.status, stored.is_routed) == (PublishStatus.STORED, False)
        assert unknown.value.code is ErrorCode.UNKNOWN_EXCHANGE


async def test_a_full_queue_refuses_and_takes_again(tmp_path: Path) -> None:
    async with QueueNode(tmp_path) as node:
        await node.declare("q", max_length=2, overflow=Overflow.REJECT_PUBLISH)

        answers = await node.send("", "q", b"1", b"2", b"3")
        taken = await node.drain("q")
        [again] = await node.send("", "q", b"4")

        assert [each.status for each in answers] == [
            PublishStatus.STORED,
            PublishStatus.STORED,
            PublishStatus.REFUSED,
        ]
        assert taken == [b"1", b"2"]
        assert again.status is PublishStatus.STORED


async def test_a_queue_that_blocks_makes_its_publisher_wait_in_order(tmp_path: Path) -> None:
    async with QueueNode(tmp_path) as node:
        await node.declare("q", max_length=1, overflow=Overflow.BLOCK)
        flows: list[bool] = []
        answers: list[int] = []
        publisher = node.queues.publisher(
            NAMESPACE, lambda tokens, _: answers.extend(tokens), flows.append
        )
        for number in range(3):
            house_message = Message(b"q", b"%d" % number)
            publisher.publish("", house_message, _to("q"), number)

        await eventually(lambda: answers == [0])
        assert flows == [False]
        assert publisher.is_blocked
        inbox = node.consume("q", no_ack=True)

        assert await inbox.wait_for(3) == [b"0", b"1", b"2"]
        assert answers == [0, 1, 2]
        assert flows == [False, True]


async def test_a_queue_that_drops_its_head_keeps_the_newest(tmp_path: Path) -> None:
    async with QueueNode(tmp_path) as node:
        await node.declare("q", max_length=2)
        await node.send("", "q", b"1", b"2", b"3", b"4")
        assert await node.drain("q") == [b"3", b"4"]
        assert node.queues.admin.counts().dropped["overflow"] == 2


async def test_a_rejected_message_becomes_a_dead_letter_with_its_history(tmp_path: Path) -> None:
    async with QueueNode(tmp_path) as node:
        await node.exchange("dead", "fanout")
        await node.declare("morgue")
        await node.bind("dead", "morgue")
        await node.exchange("orders", "direct")
        await node.declare("q", dead_letter_exchange="dead", dead_letter_key="rip")
        await node.bind("orders", "q", "k")
        await node.send("orders", "k", b"bad")
        inbox = node.consume("q")
        await inbox.wait_for(1)

        inbox.subscription.settle(inbox.numbers, REJECT)
        morgue = node.consume("morgue")
        await morgue.wait_for(1)

        letter = morgue.deliveries[0].message
        [death] = death_history_of(letter)
        assert (letter.key, letter.value) == (b"rip", b"bad")
        assert (death.queue, death.reason, death.exchange) == ("q", "rejected", "orders")
        assert death.routing_keys == ("k",)
        assert node.queues.admin.describe(NAMESPACE, "q").total == 0


async def test_messages_expire_by_themselves_and_leave_a_dead_letter(tmp_path: Path) -> None:
    async with QueueNode(tmp_path) as node:
        await node.declare("morgue")
        await node.declare(
            "q", message_ttl_ms=20, dead_letter_exchange="", dead_letter_key="morgue"
        )
        await node.send("", "q", b"1", b"2")

        assert await node.consume("morgue").wait_for(2) == [b"1", b"2"]
        assert node.queues.admin.describe(NAMESPACE, "q").total == 0


def test_a_dead_letter_is_not_repeated_after_a_kill(tmp_path: Path) -> None:
    async def before() -> None:
        node = await QueueNode(tmp_path).__aenter__()
        await node.declare("morgue")
        await node.declare("q", dead_letter_exchange="", dead_letter_key="morgue")
        await node.send("", "q", b"bad")
        inbox = node.consume("q")
        await inbox.wait_for(1)
        # The letter is appended, and the node dies before the original is settled.
        node.rooms.driver.dead_letters._dead_letter = lambda *_: None  # type: ignore[method-assign]
        inbox.subscription.settle(inbox.numbers, REJECT)
        await eventually(lambda: node.queues.status(NAMESPACE, "morgue").messages == 1)
        for shard in node.rooms.driver.shards:
            await shard.safe()
        await node.crash()

    async def after() -> None:
        async with QueueNode(tmp_path) as node:
            await eventually(lambda: node.queues.admin.describe(NAMESPACE, "q").total == 0)
            assert await node.drain("morgue") == [b"bad"]

    asyncio.run(before())
    asyncio.run(after())


async def test_a_returned_message_goes_to_the_next_consumer_before_later_ones(
    tmp_path: Path,
) -> None:
    async with QueueNode(tmp_path) as node:
        await node.declare("q")
        await node.send("", "q", b"1", b"2", b"3")
        first = node.consume("q", window=1)
        await first.wait_for(1)
        second = node.consume("q", window=1)
        await second.wait_for(1)

        first.subscription.settle(first.numbers, RETURN)
        await first.wait_for(2)

        assert first.bodies == [b"1", b"1"]
        assert first.deliveries[1].redelivered


async def test_a_consumer_gets_nothing_once_its_cancel_is_done(tmp_path: Path) -> None:
    async with QueueNode(tmp_path) as node:
        await node.declare("q")
        await node.send("", "q", *[b"%d" % number for number in range(50)])
        inbox = node.consume("q", window=20)

        inbox.subscription.cancel()

        # What was meant for it in this turn of the loop came before the cancel was done.
        assert len(inbox.deliveries) == 20
        again = node.consume("q")
        await again.wait_for(30)
        assert len(inbox.deliveries) == 20
        inbox.subscription.settle(inbox.numbers[:19], ACKNOWLEDGE)
        inbox.subscription.settle(inbox.numbers[19:], RETURN)
        await again.wait_for(31)
        assert again.bodies[-1] == b"19"


async def test_a_session_that_is_gone_gives_back_what_it_had(tmp_path: Path) -> None:
    async with QueueNode(tmp_path) as node:
        await node.declare("q")
        await node.send("", "q", b"1", b"2")
        first = node.consume("q")
        await first.wait_for(2)
        first.subscription.settle(first.numbers[:1], ACKNOWLEDGE)

        first.subscription.close()

        assert await node.consume("q").wait_for(1) == [b"2"]


async def test_queues_of_a_connection_go_with_it_and_leave_nothing(tmp_path: Path) -> None:
    async with QueueNode(tmp_path) as node:
        await node.exchange("orders", "topic")
        for number in range(20):
            await node.declare(f"reply-{number}", exclusive=True)
            await node.bind("orders", f"reply-{number}", "#")
        with pytest.raises(InvalidRequest) as locked:
            node.queues.status(NAMESPACE, "reply-1", connection="other")
        written = [shard.live.written for shard in node.rooms.driver.shards]

        node.queues.connection_gone("c")
        await eventually(lambda: not list(node.queues.admin.queues(NAMESPACE)))

        assert locked.value.code is ErrorCode.RESOURCE_LOCKED
        assert not list(node.queues.admin.bindings(NAMESPACE))
        assert len(written) == len(node.rooms.driver.shards)
        [unrouted] = await node.send("orders", "k", b"1")
        assert not unrouted.is_routed


async def test_a_queue_that_is_deleted_ends_its_consumers(tmp_path: Path) -> None:
    async with QueueNode(tmp_path) as node:
        await node.declare("q")
        await node.send("", "q", b"1", b"2")
        inbox = node.consume("q", window=1)
        await inbox.wait_for(1)

        ready = await node.queues.delete_queue(NAMESPACE, "q")

        assert ready == 1
        assert inbox.endings == [None]
        inbox.subscription.settle(inbox.numbers, ACKNOWLEDGE)
        inbox.subscription.close()
        [answer] = await node.send("", "q", b"3")
        assert answer.status is PublishStatus.NOBODY


async def test_an_exchange_does_not_take_over_a_topic_unless_it_is_declared_shared(
    tmp_path: Path,
) -> None:
    async with QueueNode(tmp_path) as node:
        await node.create()
        await _append(node, b"old")
        with pytest.raises(InvalidRequest) as refused:
            await node.exchange("t", "fanout")

        await node.declare("q")
        await node.queues.declare_exchange(NAMESPACE, _exchange("t", "fanout"), shared=True)
        await node.bind("t", "q")
        await _append(node, b"new")

        assert refused.value.code is ErrorCode.RESOURCE_LOCKED
        assert await node.consume("q").wait_for(1) == [b"new"]
        await node.queues.delete_exchange(NAMESPACE, "t")
        await node.rooms.upkeep.run_once(is_full=True)
        assert node.placement.service.catalogue.topic("t") is not None


def test_a_snapshot_shortens_the_stream_and_says_the_same(tmp_path: Path) -> None:
    async def before() -> int:
        async with QueueNode(tmp_path) as node:
            await node.exchange("orders", "topic")
            await node.declare("q", max_priority=3)
            await node.bind("orders", "q", "a.#")
            await node.send("orders", "a.b", *(b"%d" % number for number in range(50)))
            inbox = node.consume("q", window=10)
            await inbox.wait_for(10)
            inbox.subscription.settle(inbox.numbers, ACKNOWLEDGE)
            await inbox.wait_for(20)
            inbox.subscription.close()
            dropped = 0
            for shard in node.rooms.driver.shards:
                await node.rooms.upkeep.shorten(shard)
                dropped += node.streams.partition("__queues", shard.live.partition).start_offset
            return dropped

    async def after() -> None:
        async with QueueNode(tmp_path) as node:
            assert len(list(node.queues.admin.bindings(NAMESPACE))) == 1
            await node.send("orders", "a.c", b"new")
            wanted = [b"%d" % number for number in range(10, 50)]
            assert await node.drain("q") == [*wanted, b"new"]

    assert asyncio.run(before()) > 0
    asyncio.run(after())
    asyncio.run(_nothing_left(tmp_path))


async def _nothing_left(folder: Path) -> None:
    async with QueueNode(folder) as node:
        assert node.queues.status(NAMESPACE, "q").messages == 0


async def test_retention_takes_nothing_that_a_queue_needs(tmp_path: Path) -> None:
    def _floor(node: QueueNode) -> int:
        node.rooms.upkeep.note_floors()
        return node.rooms.upkeep.floor(node.streams.partition("orders", 0))

    async with QueueNode(tmp_path) as node:
        await node.exchange("orders", "fanout")
        await node.declare("q")
        await node.bind("orders", "q")
        await node.send("orders", "", b"1", b"2", b"3")
        writer = node.streams.partition("orders", 0)
        await eventually(lambda: node.queues.status(NAMESPACE, "q").messages == 3)
        node.rooms.upkeep.note_floors()
        assert node.rooms.upkeep.floor(writer) == 0

        await node.queues.get(NAMESPACE, "q", no_ack=True)
        await eventually(lambda: _floor(node) == 1)
        await node.queues.purge_queue(NAMESPACE, "q")
        await eventually(lambda: _floor(node) == 3)


async def test_a_node_that_serves_no_queues_holds_no_records_back(tmp_path: Path) -> None:
    async with QueueNode(tmp_path) as node:
        await node.declare("q")
        await node.create()
        await _append(node, b"1")
        writer = node.streams.partition("t", 0)
        upkeep, driver = node.rooms.upkeep, node.rooms.driver
        assert upkeep.floor(writer) == 1

        driver._unload(Unavailable(ErrorCode.COORDINATOR_LOADING))
        while_loading = upkeep.floor(writer)
        driver._unload(Unavailable(ErrorCode.NOT_COORDINATOR))
        when_elsewhere = upkeep.floor(writer)

        assert (while_loading, when_elsewhere) == (0, 1)


def test_a_message_that_nobody_fetches_does_not_hold_all_records_behind_it(
    tmp_path: Path,
) -> None:
    headers = (("colour", b"red"),)

    async def before() -> None:
        node = await QueueNode(tmp_path).__aenter__()
        await node.exchange("orders", "direct")
        await node.declare("old")
        await node.bind("orders", "old", "rare")
        await node.send_message("orders", Message(b"rare", b"precious", headers))
        writer = node.streams.partition("orders", 0)
        for _ in range(4):
            writer.log.roll()
            await node.send("orders", "frequent", b"x" * 10_000)
        await eventually(lambda: node.queues.status(NAMESPACE, "old").messages == 1)
        node.rooms.upkeep.body_relocator.pinned_bytes_max = 20_000

        moved = await node.rooms.upkeep.body_relocator.run_once()
        again = await node.rooms.upkeep.body_relocator.run_once()
        await eventually(lambda: _floor(node) == writer.committed)
        for shard in node.rooms.driver.shards:
            await shard.safe()

        assert (moved, again) == (1, 0)
        await node.crash()

    async def after() -> None:
        async with QueueNode(tmp_path) as node:
            inbox = node.consume("old")
            await inbox.wait_for(1)
            [delivery] = inbox.deliveries
            assert (delivery.message.key, delivery.message.value) == (b"rare", b"precious")
            assert (delivery.message.headers, delivery.exchange) == (headers, "orders")
            assert node.queues.status(NAMESPACE, "old").messages == 0

    def _floor(node: QueueNode) -> int:
        node.rooms.upkeep.note_floors()
        return node.rooms.upkeep.floor(node.streams.partition("orders", 0))

    asyncio.run(before())
    asyncio.run(after())


async def test_a_delayed_message_waits_and_lasts(tmp_path: Path) -> None:
    async with QueueNode(tmp_path) as node:
        await node.exchange("later", "direct", delayed=True)
        await node.declare("q")
        await node.bind("later", "q", "k")
        await node.send_message("later", Message(b"k", b"slow", (("x-delay", b"60"),)))
        await node.send_message("later", Message(b"k", b"fast"))
        await eventually(lambda: node.queues.admin.describe(NAMESPACE, "q").total == 2)

        assert node.queues.admin.describe(NAMESPACE, "q").delayed == 1
        assert await node.consume("q").wait_for(2) == [b"fast", b"slow"]


async def test_a_message_may_say_when_it_is_visible_whatever_the_exchange(tmp_path: Path) -> None:
    async with QueueNode(tmp_path) as node:
        await node.exchange("orders", "direct")
        await node.declare("q")
        await node.bind("orders", "q", "k")
        far = str(2**41 * 2).encode()
        await node.send_message("orders", Message(b"k", b"slow", (("x-visible-at", far),)))
        await node.send_message("orders", Message(b"k", b"odd", (("x-visible-at", b"soon"),)))
        await node.send_message("orders", Message(b"k", b"fast"))
        await eventually(lambda: node.queues.admin.describe(NAMESPACE, "q").total == 3)

        assert node.queues.admin.describe(NAMESPACE, "q").delayed == 1
        assert await node.consume("q").wait_for(2) == [b"odd", b"fast"]


async def test_dead_letters_are_looked_at_and_sent_back(tmp_path: Path) -> None:
    async with QueueNode(tmp_path) as node:
        admin = node.queues.admin
        await node.exchange("orders", "direct")
        await node.declare("morgue")
        await node.declare("q", dead_letter_exchange="", dead_letter_key="morgue")
        await node.bind("orders", "q", "k")
        await node.send("orders", "k", b"1", b"2", b"3")
        inbox = node.consume("q")
        await inbox.wait_for(3)
        inbox.subscription.settle(inbox.numbers, REJECT)
        await eventually(lambda: admin.describe(NAMESPACE, "morgue").ready == 3)
        inbox.subscription.cancel()

        seen = await admin.browse(NAMESPACE, "morgue")
        moved = await admin.move(NAMESPACE, "morgue", where=lambda each: each.message.value != b"2")

        assert [(each.message.value, each.place) for each in seen][:1] == [(b"1", "ready")]
        assert moved == 2
        assert await node.drain("q") == [b"1", b"3"]
        assert await node.drain("morgue") == [b"2"]


async def test_a_shared_window_gives_its_room_to_the_consumer_that_holds_least(
    tmp_path: Path,
) -> None:
    """However many are acknowledged at once: one queue must not take all the room back."""

    async with QueueNode(tmp_path) as node:
        await node.declare("a")
        await node.declare("b")
        shared = ConsumerWindow(10)
        for queue in ("a", "b"):
            await node.send("", queue, *(b"%d" % number for number in range(30)))
        first = node.consume("a", shared=shared)
        await first.wait_for(10)
        second = node.consume("b", shared=shared)

        first.subscription.settle(first.numbers[:9], ACKNOWLEDGE)

        await second.wait_for(9)
        assert len(first.deliveries) == 10


async def test_a_window_that_consumers_share_opens_for_all_of_them(tmp_path: Path) -> None:
    async with QueueNode(tmp_path) as node:
        await node.declare("a")
        await node.declare("b")
        shared = ConsumerWindow(1)
        first = node.consume("a", shared=shared)
        second = node.consume("b", shared=shared)
        await node.send("", "a", b"1")
        await first.wait_for(1)
        await node.send("", "b", b"2")
        assert not second.deliveries

        first.subscription.settle(first.numbers, ACKNOWLEDGE)

        assert await second.wait_for(1) == [b"2"]


async def test_credit_bounds_what_a_consumer_without_acknowledgements_is_sent(
    tmp_path: Path,
) -> None:
    async with QueueNode(tmp_path) as node:
        await node.declare("q")
        await node.send("", "q", *(b"%d" % number for number in range(5)))
        seen: list[bytes | None] = []
        wish = ConsumeRequest(window=ConsumerWindow(credit=2), no_ack=True)
        subscription = node.queues.consume(
            NAMESPACE,
            "q",
            wish,
            lambda some: seen.extend(each.message.value for each in some),
            lambda _: None,
        )
        await eventually(lambda: len(seen) == 2)

        subscription.credit(3)

        await eventually(lambda: len(seen) == 5)


async def test_namespaces_do_not_see_each_other(tmp_path: Path) -> None:
    async with QueueNode(tmp_path) as node:
        await node.declare("q")
        await node.exchange("orders", "fanout")
        await node.bind("orders", "q")
        queues = node.queues
        settings = queues.admin.describe(NAMESPACE, "q").settings
        await queues.declare_queue("team", "q", settings)
        await queues.declare_exchange("team", _exchange("orders", "fanout"))
        target = Destination(is_queue=True, name="q")
        await queues.bind("team", Binding("orders", target))
        await node.send("orders", "", b"here")

        assert await node.drain("q") == [b"here"]
        assert queues.status("team", "q").messages == 0
        topics = {each.topic for each in queues.admin.exchanges("team")}
        assert "exchange.team.orders" in topics


async def test_names_that_kafka_holds_for_equal_get_topics_of_their_own(tmp_path: Path) -> None:
    async with QueueNode(tmp_path) as node:
        await node.exchange("a.b", "fanout")
        await node.exchange("a_b", "fanout")
        topics = {each.exchange.name: each.topic for each in _exchanges(node)}
        assert topics["a.b"] == "a.b"
        assert topics["a_b"] == "exchange._2f.a_5fb"


async def test_a_node_without_queues_has_no_topics_for_them(tmp_path: Path) -> None:
    async with QueueNode(tmp_path) as node:
        await node.queues.ready()
        assert list(node.placement.service.catalogue.topics()) == []
        assert list(node.queues.admin.queues(NAMESPACE)) == []


async def test_queues_that_could_not_be_stored_are_loaded_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with QueueNode(tmp_path) as node:
        await node.declare("q")
        await node.send("", "q", b"1", b"2")
        inbox = node.consume("q", window=1)
        await inbox.wait_for(1)
        facts = {writer.log for writer in node.rooms.driver.topics.writers("__queues")}
        whole = RangeLog.append

        def full(log: RangeLog, staged: Any) -> None:
            if log in facts:
                raise Unavailable(ErrorCode.OVERLOADED, "no descriptor is free")
            whole(log, staged)

        monkeypatch.setattr(RangeLog, "append", full)
        inbox.subscription.settle(inbox.numbers, ACKNOWLEDGE)
        await eventually(lambda: inbox.endings)
        [refused] = await node.send("", "q", b"3")
        monkeypatch.setattr(RangeLog, "append", whole)
        await eventually(lambda: node.rooms.driver.shards)

        # The acknowledgement was never stored, so the message is still there.
        assert refused.status is PublishStatus.REFUSED
        assert await node.drain("q") == [b"1", b"2"]
        [again] = await node.send("", "q", b"4")
        assert again.status is PublishStatus.STORED


async def test_memory_that_runs_short_slows_publishers_and_then_refuses_them(
    tmp_path: Path,
) -> None:
    async with QueueNode(tmp_path, memory_bytes_max=100 * ITEM_BYTES) as node:
        await node.declare("q", max_length=1_000, overflow=Overflow.REJECT_PUBLISH)
        flows: list[bool] = []
        publisher = node.queues.publisher(NAMESPACE, lambda *_: None, flows.append)

        await node.send("", "q", *(b"%d" % number for number in range(85)))
        await eventually(lambda: flows == [False])
        assert publisher.is_blocked
        await node.send("", "q", *(b"%d" % number for number in range(6)))
        await eventually(lambda: node.queues.status(NAMESPACE, "q").messages == 91)
        for shard in node.rooms.driver.shards:
            await shard.safe()
        [refused] = await node.send("", "q", b"too much")
        await node.queues.purge_queue(NAMESPACE, "q")
        await eventually(lambda: flows == [False, True])
        [taken] = await node.send("", "q", b"again")

        assert refused.status is PublishStatus.REFUSED
        assert taken.status is PublishStatus.STORED


async def test_a_dead_letter_may_go_to_an_internal_exchange(tmp_path: Path) -> None:
    async with QueueNode(tmp_path) as node:
        await node.exchange("inner", "fanout", internal=True)
        await node.declare("morgue")
        await node.bind("inner", "morgue")
        await node.declare("q", max_length=1, dead_letter_exchange="inner")

        await node.send("", "q", b"1", b"2")
        with pytest.raises(InvalidRequest) as refused:
            node.publish("inner", "k", b"3")

        assert await node.consume("morgue").wait_for(1) == [b"1"]
        assert refused.value.code is ErrorCode.RESERVED_NAME


async def _append(node: QueueNode, value: bytes) -> None:
    await node.streams.append("t", 0, build_batch([Record(0, 1, b"k", value)]))


def _to(queue: str) -> Routing:
    return Routing((queue,))


def _exchange(name: str, kind: str) -> Exchange:
    return Exchange(name=name, kind=ExchangeKind(kind))


def _exchanges(node: QueueNode) -> list[ExchangeView]:
    return list(node.queues.admin.exchanges(NAMESPACE))
