"""Our consumer reads what another client wrote in transactions."""

import asyncio

import pytest
from confluent_kafka import Producer as ForeignProducer

from mainstem.client.admin import Admin
from mainstem.client.consumer import Consumer, ConsumerSettings
from mainstem.client.values import TopicPartition


def write(broker: str) -> None:
    producer = ForeignProducer(
        {"bootstrap.servers": broker, "transactional.id": "writer", "linger.ms": 0}
    )
    producer.init_transactions(30)
    for number, outcome in enumerate(["commit", "abort", "commit", "abort", "abort", "commit"]):
        producer.begin_transaction()
        for place in range(5):
            producer.produce("t", value=f"{outcome} {number} {place}", partition=0)
            producer.flush()
        if outcome == "commit":
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)


async def read(broker: str, isolation: str, count: int) -> list[str]:
    settings = ConsumerSettings(reset="earliest", isolation=isolation, fetch_wait_ms=100)
    async with Consumer(broker, settings=settings) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        values: list[str] = []
        async with asyncio.timeout(30):
            while len(values) < count:
                values += [(r.value or b"").decode() for r in await consumer.poll(500)]
        values += [(r.value or b"").decode() for r in await consumer.poll(300)]
        return values


@pytest.mark.needs("java", "maven")
async def test_only_committed_records_are_read_when_asked_so(kafka: str) -> None:
    async with Admin(kafka) as admin:
        await admin.create_topic("t", partitions=1)
    await asyncio.to_thread(write, kafka)
    committed = await read(kafka, "read_committed", 15)
    everything = await read(kafka, "read_uncommitted", 30)
    assert committed == [f"commit {n} {p}" for n in (0, 2, 5) for p in range(5)]
    assert len(everything) == 30
