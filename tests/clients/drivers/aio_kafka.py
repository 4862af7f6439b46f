"""Runs errands with aiokafka."""

import asyncio
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from tests.clients.errand import Errand, from_arguments
from tests.clients.records import Record, encode, read_file, write_file


async def create(errand: Errand) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=errand.bootstrap)
    await admin.start()
    topic = NewTopic(errand.topic, errand.partitions, 1, topic_configs=errand.configs)
    await admin.create_topics([topic])
    await admin.close()


async def produce(errand: Errand) -> None:
    settings: dict[str, Any] = {}
    if errand.codec:
        settings["compression_type"] = errand.codec
    if errand.max_record_bytes:
        settings["max_request_size"] = errand.request_bytes
    producer = AIOKafkaProducer(bootstrap_servers=errand.bootstrap, **settings)
    await producer.start()
    sent = [
        await producer.send(
            errand.topic,
            value=record.value,
            key=record.key,
            headers=list(record.headers),
            partition=record.partition,
            timestamp_ms=record.timestamp_ms,
        )
        for record in read_file(Path(errand.input))
    ]
    await producer.flush()
    await asyncio.gather(*sent)
    await producer.stop()


async def consume(errand: Errand) -> None:
    consumer = await _group_consumer(errand)
    received = [_record(await consumer.getone()) for _ in range(errand.count)]
    write_file(Path(errand.output), received)
    await consumer.stop()


async def read(errand: Errand) -> None:
    consumer = AIOKafkaConsumer(bootstrap_servers=errand.bootstrap, check_crcs=True)
    await consumer.start()
    partition = TopicPartition(errand.topic, errand.partition)
    consumer.assign([partition])
    offset = errand.offset
    if errand.timestamp_ms is not None:
        found = await consumer.offsets_for_times({partition: errand.timestamp_ms})
        offset = found[partition].offset
    assert offset is not None
    consumer.seek(partition, offset)
    received = [_record(await consumer.getone()) for _ in range(errand.count)]
    write_file(Path(errand.output), received)
    await consumer.stop()


async def member(errand: Errand) -> None:
    consumer = await _group_consumer(errand)
    output = await asyncio.to_thread(open, errand.output, "w", buffering=1)
    async for message in consumer:
        output.write(encode(_record(message)) + "\n")


async def _group_consumer(errand: Errand) -> Any:
    settings: dict[str, Any] = {}
    if errand.session_timeout_ms:
        settings["session_timeout_ms"] = errand.session_timeout_ms
        settings["heartbeat_interval_ms"] = errand.session_timeout_ms // 3
    consumer = AIOKafkaConsumer(
        errand.topic,
        bootstrap_servers=errand.bootstrap,
        group_id=errand.group,
        auto_offset_reset="earliest",
        check_crcs=True,
        **settings,
    )
    await consumer.start()
    return consumer


def _record(message: Any) -> Record:
    return Record(
        key=message.key,
        value=message.value,
        headers=tuple(message.headers),
        timestamp_ms=message.timestamp,
        partition=message.partition,
        offset=message.offset,
    )


if __name__ == "__main__":
    asked = from_arguments()
    todo = {
        "create": create,
        "produce": produce,
        "consume": consume,
        "read": read,
        "member": member,
    }
    asyncio.run(todo[asked.op](asked))
