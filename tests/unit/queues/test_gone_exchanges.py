"""Exchanges and queues that are deleted, and declared again, on real files."""

import asyncio
from pathlib import Path

import pytest
from tests.unit.queues.queue_house import NAMESPACE, QueueHouse

from mainstem.broker.queues_api import Fate, Overflow
from mainstem.model.errors import ErrorCode, InvalidRequest


async def orders_to_q(house: QueueHouse) -> None:
    """An exchange whose messages all go to one queue."""
    await house.exchange("orders", "fanout")
    await house.declare("q")
    await house.bind("orders", "q")


def test_messages_of_a_deleted_exchange_stay_and_its_topic_goes_once_they_are_gone(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with QueueHouse(tmp_path) as house:
            await orders_to_q(house)
            await house.send("orders", "", b"1")

            await house.queues.delete_exchange(NAMESPACE, "orders")
            await house.rooms.upkeep.run_once(is_full=True)
            assert house.placement.service.catalogue.topic("orders") is not None
            assert await house.drain("q") == [b"1"]
            for shard in house.rooms.runtime.shards:
                await shard.safe()
            await house.rooms.upkeep.run_once(is_full=True)

            assert house.placement.service.catalogue.topic("orders") is None

    asyncio.run(story())


def test_what_is_declared_again_gets_no_message_of_its_predecessor(tmp_path: Path) -> None:
    async def before() -> None:
        house = await QueueHouse(tmp_path).__aenter__()
        await orders_to_q(house)
        for body in (b"1", b"2"):
            await house.send("orders", "", body)
            await house.send("", "q", body)
            house.publish("", "q", body)  # nobody waits for its answer
            await house.queues.delete_queue(NAMESPACE, "q")
            await house.queues.delete_exchange(NAMESPACE, "orders")
            await orders_to_q(house)
        await house.send("orders", "", b"3")
        assert await house.consume("q").wait_for(1) == [b"3"]
        await house.crash()

    async def after() -> None:
        async with QueueHouse(tmp_path) as house:
            assert await house.drain("q") == [b"3"]

    asyncio.run(before())
    asyncio.run(after())


def test_what_was_published_right_before_its_exchange_goes_is_confirmed_and_arrives(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with QueueHouse(tmp_path) as house:
            await orders_to_q(house)

            tokens = house.publish("orders", "", b"1", b"2")
            await house.queues.delete_exchange(NAMESPACE, "orders")

            assert {each.fate for each in await house.settled(tokens)} == {Fate.STORED}
            assert await house.consume("q").wait_for(2) == [b"1", b"2"]
            with pytest.raises(InvalidRequest) as refused:
                house.publish("orders", "", b"3")
            assert refused.value.code is ErrorCode.UNKNOWN_EXCHANGE

    asyncio.run(story())


def test_a_crash_after_an_exchange_went_loses_nothing_that_it_took(tmp_path: Path) -> None:
    async def before() -> None:
        house = await QueueHouse(tmp_path).__aenter__()
        await orders_to_q(house)
        stream = house.rooms.runtime.spaces[NAMESPACE].streams["orders"][0]
        stream.route_committed = lambda: None  # type: ignore[method-assign] # queues hear nothing
        await house.send("orders", "", b"1")
        await house.queues.delete_exchange(NAMESPACE, "orders")
        await house.crash()

    async def after() -> None:
        async with QueueHouse(tmp_path) as house:
            assert await house.consume("q").wait_for(1) == [b"1"]
            await house.rooms.upkeep.run_once(is_full=True)
            assert house.placement.service.catalogue.topic("orders") is not None

    asyncio.run(before())
    asyncio.run(after())


def test_publishers_that_wait_for_room_are_refused_when_the_exchange_goes(tmp_path: Path) -> None:
    async def story() -> None:
        async with QueueHouse(tmp_path) as house:
            await house.exchange("orders", "fanout")
            await house.declare("q", max_length=1, overflow=Overflow.BLOCK)
            await house.bind("orders", "q")
            await house.send("orders", "", b"1")
            [token] = house.publish("orders", "", b"2")
            await asyncio.sleep(0.01)
            assert token not in house.answers

            await house.queues.delete_exchange(NAMESPACE, "orders")

            [answer] = await house.settled([token])
            assert answer.fate is Fate.REFUSED

    asyncio.run(story())
