"""Our producer and consumer against running brokers."""

import asyncio
import itertools

import pytest

from mainstem.client.admin import Admin
from mainstem.client.consumer import Consumer, ConsumerSettings
from mainstem.client.consuming.offset_query import EARLIEST, LATEST
from mainstem.client.producer import Producer, ProducerSettings
from mainstem.client.values import CommittedOffset, ConsumerRecord, TopicPartition
from mainstem.model.errors import ErrorCode, InvalidRequest

NAMES = (f"own-client-{number}" for number in itertools.count())
FROM_START = ConsumerSettings(reset="earliest", fetch_wait_ms=100)


async def new_topic(broker: str, partitions: int = 1, **configs: str) -> str:
    name = next(NAMES)
    async with Admin(broker) as admin:
        await admin.create_topic(
            name,
            partitions=partitions,
            configs={n.replace("_", "."): v for n, v in configs.items()},
        )
    return name


async def fill(broker: str, topic: str, count: int, partition: int | None = None) -> None:
    async with Producer(broker) as producer:
        for number in range(count):
            await producer.send(
                topic,
                b"%d" % number,
                key=b"key %d" % number,
                partition=partition,
                timestamp_ms=1_000_000 + number,
            )


async def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    async with asyncio.timeout(30):
        while len(records) < count:
            records += await consumer.poll(500)
    return records


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_what_was_sent_is_read_back(broker: str, codec: str) -> None:
    headers = (("name", b"value"), ("none", None))

    topic = await new_topic(broker, 2)
    settings = ProducerSettings(compression=codec, batch_bytes=2_000)
    async with Producer(broker, settings) as producer:
        for number in range(500):
            await producer.send(
                topic, b"%d" % number, key=b"k%d" % number, headers=headers, timestamp_ms=number
            )
        await producer.send_and_wait(topic, None, key=b"deleted", partition=0)
    async with Consumer(broker, settings=FROM_START) as consumer:
        consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        records = await read(consumer, 501)
    found = {r.key: r for r in records}
    assert len(found) == len(records) == 501
    assert found[b"deleted"].value is None
    for number in range(500):
        record = found[b"k%d" % number]
        assert (record.value, record.timestamp) == (b"%d" % number, number)
        assert record.headers == headers
    for partition in (0, 1):
        offsets = [r.offset for r in records if r.partition == partition]
        assert offsets == list(range(len(offsets)))


async def test_large_records_travel_when_the_topic_allows_them(broker: str) -> None:
    sizes = [1, 65_536, 1 << 20, 8 << 20]

    topic = await new_topic(broker, max_message_bytes="20000000")
    async with Producer(broker) as producer:
        for size in sizes:
            await producer.send(topic, b"x" * size)
    async with Consumer(broker, settings=FROM_START) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert [len(r.value or b"") for r in await read(consumer, len(sizes))] == sizes


async def test_a_record_beyond_the_topics_limit_is_refused_with_a_remedy(broker: str) -> None:
    topic = await new_topic(broker, max_message_bytes="10000")
    async with Producer(broker) as producer:
        delivery = await producer.send(topic, b"x" * 20_000)
        with pytest.raises(InvalidRequest) as caught:
            await delivery
        await producer.send_and_wait(topic, b"small")
        error = caught.value
    assert error.code is ErrorCode.RECORD_TOO_LARGE
    assert "max.message.bytes" in error.remedy


async def test_a_batch_beyond_the_topics_limit_is_sent_in_smaller_ones(broker: str) -> None:
    topic = await new_topic(broker, max_message_bytes="5000")
    async with Producer(broker, ProducerSettings(linger_ms=20)) as producer:
        deliveries = [
            await producer.send(topic, b"%03d" % n + b"x" * (8_000 if n == 60 else 400))
            for n in range(100)
        ]
        outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
    refused = [n for n, outcome in enumerate(outcomes) if isinstance(outcome, Exception)]
    async with Consumer(broker, settings=FROM_START) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        records = await read(consumer, 99)
        count = len(records)
        order = [int((r.value or b"")[:3]) for r in records]
    assert refused == [60]
    assert count == 99
    assert order == [n for n in range(100) if n != 60]


async def test_seeking_by_offset_and_time_lands_inside_batches(broker: str) -> None:
    topic = await new_topic(broker)
    partition = TopicPartition(topic, 0)
    await fill(broker, topic, 1000, 0)
    async with Consumer(broker, settings=FROM_START) as consumer:
        consumer.assign([partition])
        seen = [(await read(consumer, 1))[0].offset]
        consumer.seek(partition, 321)
        seen.append((await read(consumer, 1))[0].offset)
        await consumer.seek_to_time(1_000_777)
        seen.append((await read(consumer, 1))[0].offset)
        await consumer.seek_to_time(EARLIEST)
        seen.append(await consumer.position(partition))
        await consumer.seek_to_time(LATEST)
        seen.append(await consumer.position(partition))
        await consumer.seek_to_time(9_999_999)  # after the last one
        seen.append(await consumer.position(partition))
        assert seen == [0, 321, 777, 0, 1000, 1000]


async def test_a_reader_at_the_end_gets_what_comes_later(broker: str) -> None:
    topic = await new_topic(broker)
    partition = TopicPartition(topic, 0)
    await fill(broker, topic, 10, 0)
    async with Consumer(broker) as consumer:
        consumer.assign([partition])
        assert await consumer.position(partition) == 10
        waiting = asyncio.ensure_future(read(consumer, 3))
        await asyncio.sleep(0.2)
        async with Producer(broker) as producer:
            for value in (b"a", b"b", b"c"):
                await producer.send_and_wait(topic, value)
        assert [record.value for record in await waiting] == [b"a", b"b", b"c"]


async def test_an_offset_that_is_gone_leads_to_the_reset_policy(broker: str) -> None:
    topic = await new_topic(broker)
    partition = TopicPartition(topic, 0)
    await fill(broker, topic, 100, 0)
    async with Admin(broker) as admin:
        await admin.delete_records({partition: 40})
    async with Consumer(broker, settings=FROM_START) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 3)
        first = (await read(consumer, 1))[0].offset
    strict = ConsumerSettings(reset="none", fetch_wait_ms=100)
    async with Consumer(broker, settings=strict) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 3)
        with pytest.raises(InvalidRequest) as caught:
            await read(consumer, 1)
        assert (first, caught.value.code) == (40, ErrorCode.OFFSET_OUT_OF_RANGE)


async def test_a_paused_partition_gives_nothing_until_it_goes_on(broker: str) -> None:
    topic = await new_topic(broker, 2)
    paused, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    await fill(broker, topic, 50, 0)
    await fill(broker, topic, 50, 1)
    async with Consumer(broker, settings=FROM_START) as consumer:
        consumer.assign([paused, other])
        consumer.pause([paused])
        first = await read(consumer, 50)
        first += await consumer.poll(200)
        consumer.pause([paused], paused=False)
        second = await read(consumer, 50)
        assert ({r.partition for r in first}, {r.partition for r in second}) == ({1}, {0})


async def test_iterating_commits_what_was_passed_and_a_successor_goes_on(broker: str) -> None:
    topic = await new_topic(broker)
    group = f"group of {topic}"
    partition = TopicPartition(topic, 0)
    await fill(broker, topic, 20, 0)
    async with Consumer(broker, group, FROM_START) as consumer:
        consumer.assign([partition])
        async for record in consumer:
            if record.offset == 7:
                break
    async with Consumer(broker, group, FROM_START) as consumer:
        committed = await consumer.committed([partition])
        consumer.assign([partition])
        rest = await read(consumer, 12)
        assert (committed[partition].offset, [r.offset for r in rest]) == (8, list(range(8, 20)))


async def test_after_an_error_the_record_in_hand_is_not_taken_for_consumed(broker: str) -> None:
    topic = await new_topic(broker)
    group = f"group of {topic}"
    partition = TopicPartition(topic, 0)
    await fill(broker, topic, 20, 0)

    async def stumble() -> None:
        async with Consumer(broker, group, FROM_START) as consumer:
            consumer.assign([partition])
            async for record in consumer:
                1 / (7 - record.offset)

    with pytest.raises(ZeroDivisionError):
        await stumble()
    async with Consumer(broker, group, FROM_START) as consumer:
        [committed] = (await consumer.committed([partition])).values()
    assert committed.offset == 7


async def test_explicit_commits_carry_their_metadata(broker: str) -> None:
    topic = await new_topic(broker)
    partition = TopicPartition(topic, 0)
    await fill(broker, topic, 5, 0)
    settings = ConsumerSettings(auto_commit=False)
    async with Consumer(broker, f"group of {topic}", settings) as consumer:
        consumer.assign([partition])
        await consumer.commit({partition: CommittedOffset(3, metadata="half way")})
        [committed] = (await consumer.committed([partition])).values()
    assert (committed.offset, committed.metadata) == (3, "half way")
