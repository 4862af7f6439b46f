"""Our client rides out the death and return of its node."""

import asyncio
from pathlib import Path

from mainstem.client.admin import Admin
from mainstem.client.consumer import Consumer, ConsumerSettings
from mainstem.client.producer import Producer, ProducerSettings
from mainstem.client.values import ConsumerRecord, RecordMetadata, TopicPartition
from mainstem.testing.local_node import LocalNode

RECORDS = 3_000
QUICK = {"MAINSTEM_GROUPS__INITIAL_REBALANCE_DELAY_MS": "0"}


async def produce_through_deaths(node: LocalNode) -> list[RecordMetadata]:
    settings = ProducerSettings(batch_bytes=500, linger_ms=1, retry_pause_ms=20)
    async with Producer(node.kafka, settings) as producer:
        deliveries = []
        for number in range(RECORDS):
            deliveries.append(await producer.send("t", b"%d" % number, partition=0))
            if number in (RECORDS // 3, 2 * RECORDS // 3):
                await asyncio.to_thread(node.kill9)
                await asyncio.to_thread(node.start)
            elif number % 50 == 0:
                await asyncio.sleep(0.005)
        return [await delivery for delivery in deliveries]


async def read_all(node: LocalNode, count: int) -> list[ConsumerRecord]:
    async with Consumer(node.kafka, settings=ConsumerSettings(reset="earliest")) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        records: list[ConsumerRecord] = []
        async with asyncio.timeout(30):
            while len(records) < count:
                records += await consumer.poll(500)
        return records + await consumer.poll(200)


async def test_a_producer_delivers_each_record_once_though_its_node_is_killed(
    tmp_path: Path,
) -> None:
    with LocalNode(tmp_path / "data") as node:
        async with Admin(node.kafka) as admin:
            await admin.create_topic("t", partitions=1)
        places = await produce_through_deaths(node)
        records = await read_all(node, RECORDS)
        assert [record.value for record in records] == [b"%d" % n for n in range(RECORDS)]
        for number, place in enumerate(places):
            assert place.offset in (number, -1)


async def test_a_member_goes_on_where_it_was_when_its_node_comes_back(tmp_path: Path) -> None:
    settings = ConsumerSettings(
        reset="earliest", fetch_wait_ms=100, heartbeat_interval_ms=100, auto_commit_interval_ms=50
    )

    with LocalNode(tmp_path / "data", environment=QUICK) as node:
        async with Admin(node.kafka) as admin:
            await admin.create_topic("t", partitions=2)
        seen: list[bytes | None] = []
        async with Producer(node.kafka) as producer, Consumer(node.kafka, "g", settings) as reader:
            reader.subscribe(["t"])
            for chapter in range(3):
                for number in range(100):
                    await producer.send("t", b"%d" % (chapter * 100 + number), key=b"%d" % number)
                await producer.flush()
                async with asyncio.timeout(40):
                    while len(set(seen)) < 100 * (chapter + 1):
                        seen += [record.value for record in await reader.poll(200)]
                await reader.commit()
                if chapter < 2:
                    await asyncio.to_thread(node.kill9)
                    await asyncio.to_thread(node.start)
    assert sorted(int(value or b"") for value in seen) == list(range(300))
