"""A node's life as an operator sees it: quick to start, quiet when idle, orderly when it stops."""

import asyncio
import signal
import time

import psutil

from mainstem.client.admin import Admin
from mainstem.client.consumer import Consumer, ConsumerSettings
from mainstem.client.consuming.offset_query import EARLIEST
from mainstem.client.producer import Producer, ProducerSettings
from mainstem.client.values import TopicPartition
from mainstem.model.errors import MainstemError
from mainstem.testing.local_node import LocalNode

START_CPU_S_MAX = 1.0
MEMORY_BYTES_MAX = 120 * 2**20
IDLE_CPU_MAX = 0.01
IDLE_S = 5.0
PLACE = TopicPartition("stopped", 0)


def test_a_node_starts_with_little_work_and_is_small() -> None:
    # Processor time: how long that takes depends on what else the machine does (see `make bench`).
    with LocalNode() as node:
        process = psutil.Process(node.pid)
        used = sum(process.cpu_times()[:2])
        assert process.memory_info().rss < MEMORY_BYTES_MAX
    assert used < START_CPU_S_MAX


def test_an_idle_node_costs_next_to_nothing() -> None:
    with LocalNode() as node:
        process = psutil.Process(node.pid)
        time.sleep(1)
        before = sum(process.cpu_times()[:2])
        time.sleep(IDLE_S)
        used = sum(process.cpu_times()[:2]) - before
    assert used / IDLE_S < IDLE_CPU_MAX


async def produce_until_refused(bootstrap: str, stop: asyncio.Event) -> list[bytes]:
    """Values that were acknowledged before the node went away."""
    acknowledged: list[bytes] = []
    settings = ProducerSettings(linger_ms=0, delivery_timeout_ms=2_000, block_timeout_ms=2_000)
    producer = Producer(bootstrap, settings)
    try:
        for number in range(1_000_000):
            value = b"%d" % number
            await producer.send_and_wait(PLACE.topic, value, partition=PLACE.partition)
            acknowledged.append(value)
            if len(acknowledged) == 200:
                stop.set()
    except MainstemError:
        return acknowledged
    finally:
        await producer.close(timeout_ms=0)
    raise AssertionError("the node was never stopped")


async def read_all(bootstrap: str) -> list[bytes | None]:
    settings = ConsumerSettings(reset="earliest")
    async with Admin(bootstrap) as admin, Consumer(bootstrap, settings=settings) as consumer:
        end = (await admin.offsets({PLACE: -1}))[PLACE].offset
        consumer.assign([PLACE])
        await consumer.seek_to_time(EARLIEST)
        values: list[bytes | None] = []
        while len(values) < end:
            values += [record.value for record in await consumer.poll(1_000)]
        return values


def test_a_stop_under_load_is_quick_and_keeps_every_acknowledged_record() -> None:
    with LocalNode() as node:

        async def load_and_stop() -> list[bytes]:
            enough = asyncio.Event()
            load = asyncio.create_task(produce_until_refused(node.kafka, enough))
            await enough.wait()
            psutil.Process(node.pid).send_signal(signal.SIGTERM)
            return await load

        acknowledged = asyncio.run(load_and_stop())
        assert node.wait(timeout_s=10) == 0
        node.start()
        stored = asyncio.run(read_all(node.kafka))
    # At most the one record whose answer was under way may be there in addition.
    assert stored[: len(acknowledged)] == acknowledged
    assert len(stored) <= len(acknowledged) + 1


def test_a_parked_fetch_does_not_hold_up_the_stop() -> None:
    with LocalNode() as node:

        async def wait_and_stop() -> None:
            settings = ConsumerSettings(reset="latest", fetch_wait_ms=25_000)
            async with Admin(node.kafka) as admin:
                await admin.create_topic("quiet")
            consumer = Consumer(node.kafka, settings=settings)
            consumer.assign([TopicPartition("quiet", 0)])
            await consumer.poll(500)
            psutil.Process(node.pid).send_signal(signal.SIGTERM)
            await asyncio.sleep(0.2)
            await consumer.close()

        started = time.monotonic()
        asyncio.run(wait_and_stop())
        assert node.wait(timeout_s=10) == 0
    assert time.monotonic() - started < 10
