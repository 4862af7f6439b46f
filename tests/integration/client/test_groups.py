"""Members of a group against running brokers: sharing, taking over, resuming."""

import asyncio
import itertools

import pytest
from tests.kit.waiting import eventually

from mainstem.client.admin import Admin
from mainstem.client.consumer import Consumer, ConsumerSettings
from mainstem.client.producer import Producer
from mainstem.client.values import ConsumerRecord, TopicPartition
from mainstem.model.errors import InvalidRequest

NAMES = (f"own-group-{number}" for number in itertools.count())
QUICK = ConsumerSettings(
    reset="earliest",
    fetch_wait_ms=100,
    heartbeat_interval_ms=100,
    session_timeout_ms=6_000,
    auto_commit_interval_ms=100,
)


class Reader:
    """A member that reads in the background until it is stopped or dies."""

    def __init__(self, broker: str, group: str, topic: str, settings: ConsumerSettings) -> None:
        self.records: list[ConsumerRecord] = []
        self.assigned: list[list[TopicPartition]] = []
        self.revoked: list[list[TopicPartition]] = []
        self._stopping = asyncio.Event()
        self.task = asyncio.ensure_future(self._run(broker, group, topic, settings))

    @property
    def current(self) -> set[int]:
        return {p.partition for p in self.assigned[-1]} if self.assigned else set()

    async def _run(self, broker: str, group: str, topic: str, settings: ConsumerSettings) -> None:
        async def on_assigned(partitions: list[TopicPartition]) -> None:
            self.assigned.append(partitions)

        async def on_revoked(partitions: list[TopicPartition]) -> None:
            self.revoked.append(partitions)

        async with Consumer(broker, group, settings) as consumer:
            consumer.subscribe([topic], on_assigned=on_assigned, on_revoked=on_revoked)
            while not self._stopping.is_set():
                self.records += await consumer.poll(100)

    async def stop(self) -> None:
        self._stopping.set()
        await self.task


async def new_topic(broker: str, partitions: int) -> str:
    name = next(NAMES)
    async with Admin(broker) as admin:
        await admin.create_topic(name, partitions=partitions)
    return name


async def fill(broker: str, topic: str, start: int, until: int) -> None:
    async with Producer(broker) as producer:
        for number in range(start, until):
            await producer.send(topic, b"%d" % number, key=b"%d" % number)


def values(*readers: Reader) -> list[bytes | None]:
    return [record.value for reader in readers for record in reader.records]


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
async def test_two_members_share_and_the_survivor_takes_over(broker: str, assignor: str) -> None:
    topic = await new_topic(broker, 4)
    settings = ConsumerSettings(
        reset="earliest",
        fetch_wait_ms=100,
        heartbeat_interval_ms=100,
        session_timeout_ms=6_000,
        assignors=(assignor,),
    )
    first = Reader(broker, topic, topic, settings)
    await eventually(lambda: first.current == {0, 1, 2, 3})
    second = Reader(broker, topic, topic, settings)
    await eventually(lambda: len(first.current) == 2 and len(second.current) == 2)
    assert first.current | second.current == {0, 1, 2, 3}
    await fill(broker, topic, 0, 200)
    await eventually(lambda: len(values(first, second)) == 200)
    assert {r.partition for r in first.records} == first.current
    assert {r.partition for r in second.records} == second.current
    async with Admin(broker) as admin:
        info = await admin.groups.describe(topic)
        assert (info.state, info.protocol, len(info.members)) == ("Stable", assignor, 2)
    await second.stop()
    await eventually(lambda: first.current == {0, 1, 2, 3})
    await fill(broker, topic, 200, 300)
    await eventually(lambda: len(values(first, second)) == 300)
    await first.stop()
    assert sorted(values(first, second), key=lambda v: int(v or b"")) == [
        b"%d" % number for number in range(300)
    ]


async def test_a_member_that_dies_silently_is_replaced_after_its_session(broker: str) -> None:
    topic = await new_topic(broker, 2)
    async with Consumer(broker, topic, QUICK) as silent:
        silent.subscribe([topic])
        async with asyncio.timeout(30):
            while not silent.assignment:
                await silent.poll(100)
        # The heart stops, as in a process that hangs.
        assert silent._membership is not None
        await silent._membership._stop_heart()
        other = Reader(broker, topic, topic, QUICK)
        await eventually(lambda: other.current == {0, 1})
        await other.stop()


async def test_a_group_resumes_where_it_committed(broker: str) -> None:
    topic = await new_topic(broker, 3)
    await fill(broker, topic, 0, 100)
    first = Reader(broker, topic, topic, QUICK)
    await eventually(lambda: len(first.records) == 100)
    await first.stop()
    await fill(broker, topic, 100, 150)
    second = Reader(broker, topic, topic, QUICK)
    await eventually(lambda: len(second.records) >= 50)
    await asyncio.sleep(0.3)
    await second.stop()
    assert sorted(int(v or b"") for v in values(second)) == list(range(100, 150))
    async with Admin(broker) as admin:
        assert {entry.lag for entry in await admin.groups.lag(topic)} == {0}


async def test_a_topic_that_grows_is_shared_out_anew(broker: str) -> None:
    topic = await new_topic(broker, 1)
    reader = Reader(broker, topic, topic, QUICK)
    await eventually(lambda: reader.current == {0})
    async with Admin(broker) as admin:
        await admin.create_partitions(topic, 3)
    second = Reader(broker, topic, topic, QUICK)  # any rebalance sees the new partitions
    await eventually(lambda: len(reader.current | second.current) == 3)
    await second.stop()
    await reader.stop()


async def test_a_group_with_members_cannot_be_reset_or_deleted(broker: str) -> None:
    topic = await new_topic(broker, 1)
    reader = Reader(broker, topic, topic, QUICK)
    await eventually(lambda: reader.current == {0})
    async with Admin(broker, timeout_ms=5_000) as admin:
        with pytest.raises(InvalidRequest):
            await admin.groups.reset(topic, {TopicPartition(topic, 0): 0})
        with pytest.raises(InvalidRequest):
            await admin.groups.delete([topic])
        await reader.stop()
        await admin.groups.reset(topic, {TopicPartition(topic, 0): 0})
        assert (await admin.groups.offsets(topic))[TopicPartition(topic, 0)].offset == 0
        await admin.groups.delete([topic])
        with pytest.raises(InvalidRequest):
            await admin.groups.describe(topic)
