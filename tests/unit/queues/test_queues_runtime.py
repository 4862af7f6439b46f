"""Queues in service, on real files: publish, consume, settle, and what survives."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.unit.queues.queue_house import NAMESPACE, QueueHouse, eventually

from mainstem.broker.queues_api import (
    ACKNOWLEDGE,
    REJECT,
    RETURN,
    Binding,
    ConsumerWish,
    Destination,
    Exchange,
    ExchangeKind,
    ExchangeView,
    Fate,
    Overflow,
    Routing,
    Window,
    deaths_of,
)
from mainstem.log.range_log import RangeLog
from mainstem.model.errors import ErrorCode, InvalidRequest, Unavailable
from mainstem.model.message import Message
from mainstem.model.record import Record, build_batch
from mainstem.queues.queue_shard import ITEM_BYTES


def test_messages_are_confirmed_and_delivered_in_order(tmp_path: Path) -> None:
    async def story() -> None:
        async with QueueHouse(tmp_path) as house:
            await house.declare("q")
            inbox = house.consume("q")

            answers = await house.send("", "q", b"1", b"2", b"3")

            assert [(each.fate, each.is_routed) for each in answers] == [(Fate.STORED, True)] * 3
            assert await inbox.wait_for(3) == [b"1", b"2", b"3"]
            assert {each.exchange for each in inbox.deliveries} == {""}

    asyncio.run(story())


def test_what_was_acknowledged_is_gone_and_the_rest_comes_back_after_a_kill(tmp_path: Path) -> None:
    async def before() -> None:
        house = await QueueHouse(tmp_path).__aenter__()
        await house.declare("q")
        await house.send("", "q", b"1", b"2", b"3", b"4")
        inbox = house.consume("q", window=3)
        await inbox.wait_for(3)
        inbox.subscription.settle(inbox.numbers[1:2], ACKNOWLEDGE)
        await inbox.wait_for(4)
        await house.rooms.runtime.shards[0].safe()
        for shard in house.rooms.runtime.shards:
            await shard.safe()
        await house.crash()

    async def after() -> None:
        async with QueueHouse(tmp_path) as house:
            inbox = house.consume("q")
            assert await inbox.wait_for(3) == [b"1", b"3", b"4"]
            assert [each.redelivered for each in inbox.deliveries] == [True, True, True]

    asyncio.run(before())
    asyncio.run(after())


def test_a_confirmed_message_that_no_queue_had_yet_arrives_after_a_kill(tmp_path: Path) -> None:
    async def before() -> None:
        house = await QueueHouse(tmp_path).__aenter__()
        await house.exchange("orders", "topic")
        await house.declare("q")
        await house.bind("orders", "q", "eu.*")
        await house.send("orders", "eu.1", b"1")
        # Queues hear nothing any more, as if the node died right after the commit.
        await house.rooms.runtime.stop()
        batch = build_batch([Record(0, 1, b"eu.2", b"2"), Record(0, 1, b"us.3", b"3")])
        await house.streams.append("orders", 0, batch)
        await house.crash()

    async def after() -> None:
        async with QueueHouse(tmp_path) as house:
            assert await house.consume("q").wait_for(2) == [b"1", b"2"]

    asyncio.run(before())
    asyncio.run(after())


def test_a_binding_sees_no_message_from_before_it_also_after_a_kill(tmp_path: Path) -> None:
    async def before() -> None:
        house = await QueueHouse(tmp_path).__aenter__()
        await house.exchange("orders", "fanout")
        await house.declare("late")
        await house.declare("early")
        await house.bind("orders", "early")
        await house.send("orders", "", b"old")
        await house.bind("orders", "late")
        await house.send("orders", "", b"new")
        await house.crash()

    async def after() -> None:
        async with QueueHouse(tmp_path) as house:
            assert await house.consume("early").wait_for(2) == [b"old", b"new"]
            assert await house.consume("late").wait_for(1) == [b"new"]

    asyncio.run(before())
    asyncio.run(after())


def test_records_of_a_kafka_client_reach_the_queues_of_an_exchange(tmp_path: Path) -> None:
    async def story() -> None:
        async with QueueHouse(tmp_path) as house:
            await house.exchange("orders", "topic")
            await house.declare("q")
            await house.bind("orders", "q", "eu.#")
            inbox = house.consume("q")
            await house.send("orders", "eu.1", b"first")

            headers = (("colour", b"red"),)
            batch = build_batch([Record(0, 5, b"eu.2", b"second", headers)])
            await house.streams.append("orders", 0, batch)
            await house.send("orders", "eu.3", b"third")

            assert await inbox.wait_for(3) == [b"first", b"second", b"third"]
            assert inbox.deliveries[1].message == Message(b"eu.2", b"second", headers, 5)
            assert inbox.deliveries[1].exchange == "orders"

    asyncio.run(story())


def test_a_message_that_nobody_wants_is_told_apart(tmp_path: Path) -> None:
    async def story() -> None:
        async with QueueHouse(tmp_path) as house:
            await house.declare("q")
            await house.exchange("orders", "direct")

            [lost] = await house.send("", "nobody", b"1")
            [stored] = await house.send("orders", "nobody", b"2")
            with pytest.raises(InvalidRequest) as unknown:
                house.publish("no-such", "k", b"3")

            assert (lost.fate, lost.is_routed) == (Fate.NOBODY, False)
            assert (stored.fate, stored.is_routed) == (Fate.STORED, False)
            assert unknown.value.code is ErrorCode.UNKNOWN_EXCHANGE

    asyncio.run(story())


def test_a_full_queue_refuses_and_takes_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with QueueHouse(tmp_path) as house:
            await house.declare("q", max_length=2, overflow=Overflow.REJECT_PUBLISH)

            answers = await house.send("", "q", b"1", b"2", b"3")
            taken = await house.drain("q")
            [again] = await house.send("", "q", b"4")

            assert [each.fate for each in answers] == [Fate.STORED, Fate.STORED, Fate.REFUSED]
            assert taken == [b"1", b"2"]
            assert again.fate is Fate.STORED

    asyncio.run(story())


def test_a_queue_that_blocks_makes_its_publisher_wait_in_order(tmp_path: Path) -> None:
    async def story() -> None:
        async with QueueHouse(tmp_path) as house:
            await house.declare("q", max_length=1, overflow=Overflow.BLOCK)
            flows: list[bool] = []
            answers: list[int] = []
            publisher = house.queues.publisher(
                NAMESPACE, lambda tokens, _: answers.extend(tokens), flows.append
            )
            for number in range(3):
                house_message = Message(b"q", b"%d" % number)
                publisher.publish("", house_message, _to("q"), number)

            await eventually(lambda: answers == [0])
            assert flows == [False]
            assert publisher.is_blocked
            inbox = house.consume("q", no_ack=True)

            assert await inbox.wait_for(3) == [b"0", b"1", b"2"]
            assert answers == [0, 1, 2]
            assert flows == [False, True]

    asyncio.run(story())


def test_a_queue_that_drops_its_head_keeps_the_newest(tmp_path: Path) -> None:
    async def story() -> None:
        async with QueueHouse(tmp_path) as house:
            await house.declare("q", max_length=2)
            await house.send("", "q", b"1", b"2", b"3", b"4")
            assert await house.drain("q") == [b"3", b"4"]
            assert house.queues.admin.counts().dropped["overflow"] == 2

    asyncio.run(story())


def test_a_rejected_message_becomes_a_dead_letter_with_its_history(tmp_path: Path) -> None:
    async def story() -> None:
        async with QueueHouse(tmp_path) as house:
            await house.exchange("dead", "fanout")
            await house.declare("morgue")
            await house.bind("dead", "morgue")
            await house.exchange("orders", "direct")
            await house.declare("q", dead_letter_exchange="dead", dead_letter_key="rip")
            await house.bind("orders", "q", "k")
            await house.send("orders", "k", b"bad")
            inbox = house.consume("q")
            await inbox.wait_for(1)

            inbox.subscription.settle(inbox.numbers, REJECT)
            morgue = house.consume("morgue")
            await morgue.wait_for(1)

            letter = morgue.deliveries[0].message
            [death] = deaths_of(letter)
            assert (letter.key, letter.value) == (b"rip", b"bad")
            assert (death.queue, death.reason, death.exchange) == ("q", "rejected", "orders")
            assert death.routing_keys == ("k",)
            assert house.queues.admin.describe(NAMESPACE, "q").total == 0

    asyncio.run(story())


def test_messages_expire_by_themselves_and_leave_a_dead_letter(tmp_path: Path) -> None:
    async def story() -> None:
        async with QueueHouse(tmp_path) as house:
            await house.declare("morgue")
            await house.declare(
                "q", message_ttl_ms=20, dead_letter_exchange="", dead_letter_key="morgue"
            )
            await house.send("", "q", b"1", b"2")

            assert await house.consume("morgue").wait_for(2) == [b"1", b"2"]
            assert house.queues.admin.describe(NAMESPACE, "q").total == 0

    asyncio.run(story())


def test_a_dead_letter_is_not_repeated_after_a_kill(tmp_path: Path) -> None:
    async def before() -> None:
        house = await QueueHouse(tmp_path).__aenter__()
        await house.declare("morgue")
        await house.declare("q", dead_letter_exchange="", dead_letter_key="morgue")
        await house.send("", "q", b"bad")
        inbox = house.consume("q")
        await inbox.wait_for(1)
        # The letter is appended, and the node dies before the original is settled.
        house.rooms.runtime.burials._buried = lambda *_: None  # type: ignore[method-assign]
        inbox.subscription.settle(inbox.numbers, REJECT)
        await eventually(lambda: house.queues.status(NAMESPACE, "morgue").messages == 1)
        for shard in house.rooms.runtime.shards:
            await shard.safe()
        await house.crash()

    async def after() -> None:
        async with QueueHouse(tmp_path) as house:
            await eventually(lambda: house.queues.admin.describe(NAMESPACE, "q").total == 0)
            assert await house.drain("morgue") == [b"bad"]

    asyncio.run(before())
    asyncio.run(after())


def test_a_returned_message_goes_to_the_next_consumer_before_later_ones(tmp_path: Path) -> None:
    async def story() -> None:
        async with QueueHouse(tmp_path) as house:
            await house.declare("q")
            await house.send("", "q", b"1", b"2", b"3")
            first = house.consume("q", window=1)
            await first.wait_for(1)
            second = house.consume("q", window=1)
            await second.wait_for(1)

            first.subscription.settle(first.numbers, RETURN)
            await first.wait_for(2)

            assert first.bodies == [b"1", b"1"]
            assert first.deliveries[1].redelivered

    asyncio.run(story())


def test_a_consumer_gets_nothing_once_its_cancel_is_done(tmp_path: Path) -> None:
    async def story() -> None:
        async with QueueHouse(tmp_path) as house:
            await house.declare("q")
            await house.send("", "q", *[b"%d" % number for number in range(50)])
            inbox = house.consume("q", window=20)

            inbox.subscription.cancel()

            # What was meant for it in this turn of the loop came before the cancel was done.
            assert len(inbox.deliveries) == 20
            again = house.consume("q")
            await again.wait_for(30)
            assert len(inbox.deliveries) == 20
            inbox.subscription.settle(inbox.numbers[:19], ACKNOWLEDGE)
            inbox.subscription.settle(inbox.numbers[19:], RETURN)
            await again.wait_for(31)
            assert again.bodies[-1] == b"19"

    asyncio.run(story())


def test_a_session_that_is_gone_gives_back_what_it_had(tmp_path: Path) -> None:
    async def story() -> None:
        async with QueueHouse(tmp_path) as house:
            await house.declare("q")
            await house.send("", "q", b"1", b"2")
            first = house.consume("q")
            await first.wait_for(2)
            first.subscription.settle(first.numbers[:1], ACKNOWLEDGE)

            first.subscription.close()

            assert await house.consume("q").wait_for(1) == [b"2"]

    asyncio.run(story())


def test_queues_of_a_connection_go_with_it_and_leave_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with QueueHouse(tmp_path) as house:
            await house.exchange("orders", "topic")
            for number in range(20):
                await house.declare(f"reply-{number}", exclusive=True)
                await house.bind("orders", f"reply-{number}", "#")
            with pytest.raises(InvalidRequest) as locked:
                house.queues.status(NAMESPACE, "reply-1", connection="other")
            written = [shard.live.written for shard in house.rooms.runtime.shards]

            house.queues.connection_gone("c")
            await eventually(lambda: not list(house.queues.admin.queues(NAMESPACE)))

            assert locked.value.code is ErrorCode.RESOURCE_LOCKED
            assert not list(house.queues.admin.bindings(NAMESPACE))
            assert len(written) == len(house.rooms.runtime.shards)
            [unrouted] = await house.send("orders", "k", b"1")
            assert not unrouted.is_routed

    asyncio.run(story())


def test_a_queue_that_is_deleted_ends_its_consumers(tmp_path: Path) -> None:
    async def story() -> None:
        async with QueueHouse(tmp_path) as house:
            await house.declare("q")
            await house.send("", "q", b"1", b"2")
            inbox = house.consume("q", window=1)
            await inbox.wait_for(1)

            ready = await house.queues.delete_queue(NAMESPACE, "q")

            assert ready == 1
            assert inbox.endings == [None]
            inbox.subscription.settle(inbox.numbers, ACKNOWLEDGE)
            inbox.subscription.close()
            [answer] = await house.send("", "q", b"3")
            assert answer.fate is Fate.NOBODY

    asyncio.run(story())


def test_an_exchange_does_not_take_over_a_topic_unless_it_is_declared_shared(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with QueueHouse(tmp_path) as house:
            await house.create()
            await _append(house, b"old")
            with pytest.raises(InvalidRequest) as refused:
                await house.exchange("t", "fanout")

            await house.declare("q")
            await house.queues.declare_exchange(NAMESPACE, _exchange("t", "fanout"), shared=True)
            await house.bind("t", "q")
            await _append(house, b"new")

            assert refused.value.code is ErrorCode.RESOURCE_LOCKED
            assert await house.consume("q").wait_for(1) == [b"new"]
            await house.queues.delete_exchange(NAMESPACE, "t")
            await house.rooms.upkeep.run_once(is_full=True)
            assert house.placement.service.catalogue.topic("t") is not None

    asyncio.run(story())


def test_a_snapshot_shortens_the_stream_and_says_the_same(tmp_path: Path) -> None:
    async def before() -> int:
        async with QueueHouse(tmp_path) as house:
            await house.exchange("orders", "topic")
            await house.declare("q", max_priority=3)
            await house.bind("orders", "q", "a.#")
            await house.send("orders", "a.b", *(b"%d" % number for number in range(50)))
            inbox = house.consume("q", window=10)
            await inbox.wait_for(10)
            inbox.subscription.settle(inbox.numbers, ACKNOWLEDGE)
            await inbox.wait_for(20)
            inbox.subscription.close()
            dropped = 0
            for shard in house.rooms.runtime.shards:
                await house.rooms.upkeep.shorten(shard)
                dropped += house.streams.door("__queues", shard.live.partition).start_offset
            return dropped

    async def after() -> None:
        async with QueueHouse(tmp_path) as house:
            assert len(list(house.queues.admin.bindings(NAMESPACE))) == 1
            await house.send("orders", "a.c", b"new")
            wanted = [b"%d" % number for number in range(10, 50)]
            assert await house.drain("q") == [*wanted, b"new"]

    assert asyncio.run(before()) > 0
    asyncio.run(after())
    asyncio.run(_nothing_left(tmp_path))


async def _nothing_left(folder: Path) -> None:
    async with QueueHouse(folder) as house:
        assert house.queues.status(NAMESPACE, "q").messages == 0


def test_retention_takes_nothing_that_a_queue_needs(tmp_path: Path) -> None:
    async def story() -> None:
        async with QueueHouse(tmp_path) as house:
            await house.exchange("orders", "fanout")
            await house.declare("q")
            await house.bind("orders", "q")
            await house.send("orders", "", b"1", b"2", b"3")
            door = house.streams.door("orders", 0)
            await eventually(lambda: house.queues.status(NAMESPACE, "q").messages == 3)
            house.rooms.upkeep.note_floors()
            assert house.rooms.upkeep.floor(door) == 0

            await house.queues.get(NAMESPACE, "q", no_ack=True)
            await eventually(lambda: _floor(house) == 1)
            await house.queues.purge_queue(NAMESPACE, "q")
            await eventually(lambda: _floor(house) == 3)

    def _floor(house: QueueHouse) -> int:
        house.rooms.upkeep.note_floors()
        return house.rooms.upkeep.floor(house.streams.door("orders", 0))

    asyncio.run(story())


def test_a_node_that_serves_no_queues_holds_no_records_back(tmp_path: Path) -> None:
    async def story() -> None:
        async with QueueHouse(tmp_path) as house:
            await house.declare("q")
            await house.create()
            await _append(house, b"1")
            door = house.streams.door("t", 0)
            upkeep, runtime = house.rooms.upkeep, house.rooms.runtime
            assert upkeep.floor(door) == 1

            runtime._unload(Unavailable(ErrorCode.COORDINATOR_LOADING))
            while_loading = upkeep.floor(door)
            runtime._unload(Unavailable(ErrorCode.NOT_COORDINATOR))
            when_elsewhere = upkeep.floor(door)

            assert (while_loading, when_elsewhere) == (0, 1)

    asyncio.run(story())


def test_a_message_that_nobody_fetches_does_not_hold_all_records_behind_it(
    tmp_path: Path,
) -> None:
    headers = (("colour", b"red"),)

    async def before() -> None:
        house = await QueueHouse(tmp_path).__aenter__()
        await house.exchange("orders", "direct")
        await house.declare("old")
        await house.bind("orders", "old", "rare")
        await house.send_message("orders", Message(b"rare", b"precious", headers))
        door = house.streams.door("orders", 0)
        for _ in range(4):
            door.log.roll()
            await house.send("orders", "frequent", b"x" * 10_000)
        await eventually(lambda: house.queues.status(NAMESPACE, "old").messages == 1)
        house.rooms.upkeep.movers.pinned_bytes_max = 20_000

        moved = await house.rooms.upkeep.movers.run_once()
        again = await house.rooms.upkeep.movers.run_once()
        await eventually(lambda: _floor(house) == door.committed)
        for shard in house.rooms.runtime.shards:
            await shard.safe()

        assert (moved, again) == (1, 0)
        await house.crash()

    async def after() -> None:
        async with QueueHouse(tmp_path) as house:
            inbox = house.consume("old")
            await inbox.wait_for(1)
            [delivery] = inbox.deliveries
            assert (delivery.message.key, delivery.message.value) == (b"rare", b"precious")
            assert (delivery.message.headers, delivery.exchange) == (headers, "orders")
            assert house.queues.status(NAMESPACE, "old").messages == 0

    def _floor(house: QueueHouse) -> int:
        house.rooms.upkeep.note_floors()
        return house.rooms.upkeep.floor(house.streams.door("orders", 0))

    asyncio.run(before())
    asyncio.run(after())


def test_a_delayed_message_waits_and_lasts(tmp_path: Path) -> None:
    async def story() -> None:
        async with QueueHouse(tmp_path) as house:
            await house.exchange("later", "direct", delayed=True)
            await house.declare("q")
            await house.bind("later", "q", "k")
            await house.send_message("later", Message(b"k", b"slow", (("x-delay", b"60"),)))
            await house.send_message("later", Message(b"k", b"fast"))
            await eventually(lambda: house.queues.admin.describe(NAMESPACE, "q").total == 2)

            assert house.queues.admin.describe(NAMESPACE, "q").delayed == 1
            assert await house.consume("q").wait_for(2) == [b"fast", b"slow"]

    asyncio.run(story())


def test_a_message_may_say_when_it_is_visible_whatever_the_exchange(tmp_path: Path) -> None:
    async def story() -> None:
        async with QueueHouse(tmp_path) as house:
            await house.exchange("orders", "direct")
            await house.declare("q")
            await house.bind("orders", "q", "k")
            far = str(2**41 * 2).encode()
            await house.send_message("orders", Message(b"k", b"slow", (("x-visible-at", far),)))
            await house.send_message("orders", Message(b"k", b"odd", (("x-visible-at", b"soon"),)))
            await house.send_message("orders", Message(b"k", b"fast"))
            await eventually(lambda: house.queues.admin.describe(NAMESPACE, "q").total == 3)

            assert house.queues.admin.describe(NAMESPACE, "q").delayed == 1
            assert await house.consume("q").wait_for(2) == [b"odd", b"fast"]

    asyncio.run(story())


def test_dead_letters_are_looked_at_and_sent_back(tmp_path: Path) -> None:
    async def story() -> None:
        async with QueueHouse(tmp_path) as house:
            admin = house.queues.admin
            await house.exchange("orders", "direct")
            await house.declare("morgue")
            await house.declare("q", dead_letter_exchange="", dead_letter_key="morgue")
            await house.bind("orders", "q", "k")
            await house.send("orders", "k", b"1", b"2", b"3")
            inbox = house.consume("q")
            await inbox.wait_for(3)
            inbox.subscription.settle(inbox.numbers, REJECT)
            await eventually(lambda: admin.describe(NAMESPACE, "morgue").ready == 3)
            inbox.subscription.cancel()

            seen = await admin.browse(NAMESPACE, "morgue")
            moved = await admin.move(
                NAMESPACE, "morgue", where=lambda each: each.message.value != b"2"
            )

            assert [(each.message.value, each.place) for each in seen][:1] == [(b"1", "ready")]
            assert moved == 2
            assert await house.drain("q") == [b"1", b"3"]
            assert await house.drain("morgue") == [b"2"]

    asyncio.run(story())


def test_a_window_that_consumers_share_opens_for_all_of_them(tmp_path: Path) -> None:
    async def story() -> None:
        async with QueueHouse(tmp_path) as house:
            await house.declare("a")
            await house.declare("b")
            shared = Window(1)
            first = house.consume("a", shared=shared)
            second = house.consume("b", shared=shared)
            await house.send("", "a", b"1")
            await first.wait_for(1)
            await house.send("", "b", b"2")
            assert not second.deliveries

            first.subscription.settle(first.numbers, ACKNOWLEDGE)

            assert await second.wait_for(1) == [b"2"]

    asyncio.run(story())


def test_credit_bounds_what_a_consumer_without_acknowledgements_is_sent(tmp_path: Path) -> None:
    async def story() -> None:
        async with QueueHouse(tmp_path) as house:
            await house.declare("q")
            await house.send("", "q", *(b"%d" % number for number in range(5)))
            seen: list[bytes | None] = []
            wish = ConsumerWish(window=Window(credit=2), no_ack=True)
            subscription = house.queues.consume(
                NAMESPACE,
                "q",
                wish,
                lambda some: seen.extend(each.message.value for each in some),
                lambda _: None,
            )
            await eventually(lambda: len(seen) == 2)

            subscription.credit(3)

            await eventually(lambda: len(seen) == 5)

    asyncio.run(story())


def test_namespaces_do_not_see_each_other(tmp_path: Path) -> None:
    async def story() -> None:
        async with QueueHouse(tmp_path) as house:
            await house.declare("q")
            await house.exchange("orders", "fanout")
            await house.bind("orders", "q")
            queues = house.queues
            settings = queues.admin.describe(NAMESPACE, "q").settings
            await queues.declare_queue("team", "q", settings)
            await queues.declare_exchange("team", _exchange("orders", "fanout"))
            target = Destination(is_queue=True, name="q")
            await queues.bind("team", Binding("orders", target))
            await house.send("orders", "", b"here")

            assert await house.drain("q") == [b"here"]
            assert queues.status("team", "q").messages == 0
            topics = {each.topic for each in queues.admin.exchanges("team")}
            assert "exchange.team.orders" in topics

    asyncio.run(story())


def test_names_that_kafka_holds_for_equal_get_topics_of_their_own(tmp_path: Path) -> None:
    async def story() -> None:
        async with QueueHouse(tmp_path) as house:
            await house.exchange("a.b", "fanout")
            await house.exchange("a_b", "fanout")
            topics = {each.exchange.name: each.topic for each in _exchanges(house)}
            assert topics["a.b"] == "a.b"
            assert topics["a_b"] == "exchange._2f.a_5fb"

    asyncio.run(story())


def test_a_node_without_queues_has_no_topics_for_them(tmp_path: Path) -> None:
    async def story() -> None:
        async with QueueHouse(tmp_path) as house:
            await house.queues.ready()
            assert list(house.placement.service.catalogue.topics()) == []
            assert list(house.queues.admin.queues(NAMESPACE)) == []

    asyncio.run(story())


def test_queues_that_could_not_be_stored_are_loaded_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with QueueHouse(tmp_path) as house:
            await house.declare("q")
            await house.send("", "q", b"1", b"2")
            inbox = house.consume("q", window=1)
            await inbox.wait_for(1)
            facts = {door.log for door in house.rooms.runtime.topics.doors("__queues")}
            whole = RangeLog.append

            def full(log: RangeLog, staged: Any) -> None:
                if log in facts:
                    raise Unavailable(ErrorCode.OVERLOADED, "no descriptor is free")
                whole(log, staged)

            monkeypatch.setattr(RangeLog, "append", full)
            inbox.subscription.settle(inbox.numbers, ACKNOWLEDGE)
            await eventually(lambda: inbox.endings)
            [refused] = await house.send("", "q", b"3")
            monkeypatch.setattr(RangeLog, "append", whole)
            await eventually(lambda: house.rooms.runtime.shards)

            # The acknowledgement was never stored, so the message is still there.
            assert refused.fate is Fate.REFUSED
            assert await house.drain("q") == [b"1", b"2"]
            [again] = await house.send("", "q", b"4")
            assert again.fate is Fate.STORED

    asyncio.run(story())


def test_memory_that_runs_short_slows_publishers_and_then_refuses_them(tmp_path: Path) -> None:
    async def story() -> None:
        async with QueueHouse(tmp_path, memory_bytes_max=100 * ITEM_BYTES) as house:
            await house.declare("q", max_length=1_000, overflow=Overflow.REJECT_PUBLISH)
            flows: list[bool] = []
            publisher = house.queues.publisher(NAMESPACE, lambda *_: None, flows.append)

            await house.send("", "q", *(b"%d" % number for number in range(85)))
            await eventually(lambda: flows == [False])
            assert publisher.is_blocked
            await house.send("", "q", *(b"%d" % number for number in range(6)))
            await eventually(lambda: house.queues.status(NAMESPACE, "q").messages == 91)
            for shard in house.rooms.runtime.shards:
                await shard.safe()
            [refused] = await house.send("", "q", b"too much")
            await house.queues.purge_queue(NAMESPACE, "q")
            await eventually(lambda: flows == [False, True])
            [taken] = await house.send("", "q", b"again")

            assert refused.fate is Fate.REFUSED
            assert taken.fate is Fate.STORED

    asyncio.run(story())


def test_a_dead_letter_may_go_to_an_internal_exchange(tmp_path: Path) -> None:
    async def story() -> None:
        async with QueueHouse(tmp_path) as house:
            await house.exchange("inner", "fanout", internal=True)
            await house.declare("morgue")
            await house.bind("inner", "morgue")
            await house.declare("q", max_length=1, dead_letter_exchange="inner")

            await house.send("", "q", b"1", b"2")
            with pytest.raises(InvalidRequest) as refused:
                house.publish("inner", "k", b"3")

            assert await house.consume("morgue").wait_for(1) == [b"1"]
            assert refused.value.code is ErrorCode.RESERVED_NAME

    asyncio.run(story())


async def _append(house: QueueHouse, value: bytes) -> None:
    await house.streams.append("t", 0, build_batch([Record(0, 1, b"k", value)]))


def _to(queue: str) -> Routing:
    return Routing((queue,))


def _exchange(name: str, kind: str) -> Exchange:
    return Exchange(name=name, kind=ExchangeKind(kind))


def _exchanges(house: QueueHouse) -> list[ExchangeView]:
    return list(house.queues.admin.exchanges(NAMESPACE))
