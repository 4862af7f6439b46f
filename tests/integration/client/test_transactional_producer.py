"""Our own transactional producer, against a node and against Apache Kafka."""

import asyncio
import uuid
from contextlib import suppress

import pytest

from mainstem.client.admin import Admin
from mainstem.client.consumer import Consumer, ConsumerSettings
from mainstem.client.producer import Producer
from mainstem.client.transactions import TransactionalProducer
from mainstem.client.values import CommittedOffset, TopicPartition
from mainstem.model.errors import ErrorCode, Fenced, InvalidRequest, MainstemError
from mainstem.testing.local_node import LocalNode


def fresh(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex[:8]}"


async def topic(broker: str, partitions: int = 2) -> str:
    name = fresh("topic")
    async with Admin(broker) as admin:
        await admin.create_topic(name, partitions=partitions)
    return name


async def read(broker: str, name: str, count: int, partition: int = 0) -> list[str]:
    """That many committed values, and any more that are there a moment later."""
    settings = ConsumerSettings(reset="earliest", isolation="read_committed", fetch_wait_ms=100)
    async with Consumer(broker, settings=settings) as consumer:
        consumer.assign([TopicPartition(name, partition)])
        values: list[str] = []
        async with asyncio.timeout(30):
            while len(values) < count:
                values += [(r.value or b"").decode() for r in await consumer.poll(500)]
        values += [(r.value or b"").decode() for r in await consumer.poll(300)]
        return values


async def committed(broker: str, group: str, name: str) -> int | None:
    settings = ConsumerSettings(isolation="read_committed")
    async with Consumer(broker, group, settings=settings) as consumer:
        found = await consumer.committed([TopicPartition(name, 0)])
        return found[TopicPartition(name, 0)].offset if found else None


async def both_partitions(
    producer: TransactionalProducer, name: str, number: int, *, fails: bool
) -> None:
    async with producer.transaction():
        for partition in (0, 1):
            await producer.send(name, str(number).encode(), partition=partition)
        if fails:
            await producer.flush()
            raise ValueError


async def test_a_block_that_fails_leaves_nothing_behind(broker: str) -> None:
    name = await topic(broker)
    async with TransactionalProducer(broker, fresh("id")) as producer:
        for number in range(4):
            with suppress(ValueError):
                await both_partitions(producer, name, number, fails=number % 2 == 1)
    for partition in (0, 1):
        assert await read(broker, name, 2, partition) == ["0", "2"]


async def test_many_transactions_follow_one_another(broker: str) -> None:
    name = await topic(broker)
    async with TransactionalProducer(broker, fresh("id")) as producer:
        for number in range(50):
            async with producer.transaction():
                await producer.send(name, str(number).encode(), partition=number % 2)
    assert await read(broker, name, 25, 0) == [str(n) for n in range(0, 50, 2)]


async def test_consumed_and_produced_records_count_together(broker: str) -> None:
    source, result, group = await topic(broker, 1), await topic(broker, 1), fresh("group")
    async with Producer(broker) as plain:
        for number in range(10):
            await plain.send(source, str(number).encode())
    settings = ConsumerSettings(reset="earliest", auto_commit=False, poll_records_max=5)
    for _ in range(2):
        async with (
            Consumer(broker, group, settings=settings) as consumer,
            TransactionalProducer(broker, f"id-{group}") as producer,
        ):
            consumer.subscribe([source])
            records = await consumer.poll(30_000)
            async with producer.transaction():
                for record in records:
                    await producer.send(result, b"<" + (record.value or b"") + b">")
                await consumer.commit(through=producer)
            # This one is given up: its records come again.
            again = await consumer.poll(300)
            producer.begin()
            for record in again:
                await producer.send(result, b"!" + (record.value or b""))
            await consumer.commit(through=producer)
            await producer.abort()
    assert await read(broker, result, 10) == [f"<{number}>" for number in range(10)]
    assert await committed(broker, group, source) == 10


async def test_a_second_producer_with_the_id_fences_the_first(broker: str) -> None:
    name, transactional_id = await topic(broker), fresh("id")
    async with TransactionalProducer(broker, transactional_id) as first:
        first.begin()
        await first.send_and_wait(name, b"first", partition=0)
        async with TransactionalProducer(broker, transactional_id) as second:
            async with second.transaction():
                await second.send(name, b"second", partition=0)
            with pytest.raises(Fenced):
                await first.commit()
            with pytest.raises(Fenced):
                first.begin()
    assert await read(broker, name, 1) == ["second"]


async def test_an_abort_also_moves_no_offset(broker: str) -> None:
    name, group = await topic(broker), fresh("group")
    async with TransactionalProducer(broker, fresh("id")) as producer:
        producer.begin()
        await producer.send_offsets(group, {TopicPartition(name, 0): CommittedOffset(7)})
        await producer.abort()
        assert await committed(broker, group, name) is None
        async with producer.transaction():
            await producer.send_offsets(group, {TopicPartition(name, 0): CommittedOffset(9)})
        assert await committed(broker, group, name) == 9


async def test_outside_a_transaction_nothing_is_sent(broker: str) -> None:
    async with TransactionalProducer(broker, fresh("id")) as producer:
        with pytest.raises(InvalidRequest):
            await producer.send("any", b"")
        with pytest.raises(InvalidRequest):
            await producer.commit()
        async with producer.transaction():
            pass  # empty: no broker needs to hear of it


async def test_a_transaction_of_which_a_record_is_lost_is_not_committed(broker: str) -> None:
    name = await topic(broker)
    async with TransactionalProducer(broker, fresh("id")) as producer:
        producer.begin()
        await producer.send(name, b"fits", partition=0)
        await producer.send(name, bytes(2 << 20), partition=0)
        with pytest.raises(MainstemError) as refusal:
            await producer.commit()
        assert refusal.value.code is ErrorCode.RECORD_TOO_LARGE
        await producer.abort()
        async with producer.transaction():
            await producer.send(name, b"after", partition=0)
    assert await read(broker, name, 1) == ["after"]


async def test_leaving_with_an_open_transaction_aborts_it(broker: str) -> None:
    name = await topic(broker)
    async with TransactionalProducer(broker, fresh("id")) as producer:
        producer.begin()
        await producer.send_and_wait(name, b"open", partition=0)
    async with (
        TransactionalProducer(broker, fresh("id")) as other,
        other.transaction(),
    ):
        await other.send(name, b"after", partition=0)
    assert await read(broker, name, 1) == ["after"]


@pytest.mark.parametrize("commit", [True, False])
async def test_a_prepared_transaction_outlives_its_producer_and_the_node(
    fresh_node: LocalNode, *, commit: bool
) -> None:
    """Two-phase commit (KIP-939), which Apache Kafka 4.2 does not serve yet."""

    async def prepare(name: str) -> str:
        producer = TransactionalProducer(fresh_node.kafka, "id", timeout_ms=1_000, two_phase=True)
        await producer.__aenter__()
        producer.begin()
        await producer.send_and_wait(name, b"prepared", partition=0)
        await producer.send_offsets("group", {TopicPartition(name, 0): CommittedOffset(5)})
        prepared = await producer.prepare()
        await producer.close()
        return prepared

    async def complete(name: str, prepared: str) -> None:
        async with TransactionalProducer(
            fresh_node.kafka, "id", two_phase=True, keep_prepared=True
        ) as producer:
            assert producer.prepared == prepared
            assert await producer.complete(prepared if commit else "another") is commit
            async with producer.transaction():
                await producer.send(name, b"after", partition=0)

    name = await topic(fresh_node.kafka)
    prepared = await prepare(name)
    fresh_node.kill9()
    fresh_node.start()
    await complete(name, prepared)

    expected = ["prepared", "after"] if commit else ["after"]
    assert await read(fresh_node.kafka, name, len(expected)) == expected
    assert await committed(fresh_node.kafka, "group", name) == (5 if commit else None)
