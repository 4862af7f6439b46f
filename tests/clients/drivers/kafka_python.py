"""Runs errands with kafka-python."""

from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from tests.clients.errand import Errand, from_arguments
from tests.clients.records import Record, encode, read_file


def create(errand: Errand) -> None:
    admin = KafkaAdminClient(bootstrap_servers=errand.bootstrap)
    topic = NewTopic(errand.topic, errand.partitions, 1, topic_configs=errand.configs)
    admin.create_topics([topic])
    admin.close()


def produce(errand: Errand) -> None:
    settings: dict[str, Any] = {}
    if errand.codec:
        settings["compression_type"] = errand.codec
    if errand.max_record_bytes:
        settings["max_request_size"] = errand.request_bytes
    producer = KafkaProducer(bootstrap_servers=errand.bootstrap, **settings)
    sent = [
        producer.send(
            errand.topic,
            value=record.value,
            key=record.key,
            headers=list(record.headers),
            partition=record.partition,
            timestamp_ms=record.timestamp_ms,
        )
        for record in read_file(Path(errand.input))
    ]
    producer.flush()
    for future in sent:
        future.get(timeout=60)
    producer.close()


def consume(errand: Errand) -> None:
    consumer = _group_consumer(errand)
    with Path(errand.output).open("w") as output:
        for number, message in enumerate(consumer, start=1):
            output.write(encode(_record(message)) + "\n")
            if number == errand.count:
                break
    consumer.close()


def read(errand: Errand) -> None:
    consumer = KafkaConsumer(bootstrap_servers=errand.bootstrap, check_crcs=True)
    partition = TopicPartition(errand.topic, errand.partition)
    consumer.assign([partition])
    offset = errand.offset
    if errand.timestamp_ms is not None:
        offset = consumer.offsets_for_times({partition: errand.timestamp_ms})[partition].offset
    assert offset is not None
    consumer.seek(partition, offset)
    with Path(errand.output).open("w") as output:
        for number, message in enumerate(consumer, start=1):
            output.write(encode(_record(message)) + "\n")
            if number == errand.count:
                break
    consumer.close()


def member(errand: Errand) -> None:
    with Path(errand.output).open("w", buffering=1) as output:
        for message in _group_consumer(errand):
            output.write(encode(_record(message)) + "\n")


def _group_consumer(errand: Errand) -> Any:
    settings: dict[str, Any] = {}
    if errand.session_timeout_ms:
        settings["session_timeout_ms"] = errand.session_timeout_ms
        # kafka-python insists that a third of the session covers a heartbeat.
        settings["heartbeat_interval_ms"] = min(3000, errand.session_timeout_ms // 3)
    return KafkaConsumer(
        errand.topic,
        bootstrap_servers=errand.bootstrap,
        group_id=errand.group,
        auto_offset_reset="earliest",
        check_crcs=True,
        **settings,
    )


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
    {"create": create, "produce": produce, "consume": consume, "read": read, "member": member}[
        asked.op
    ](asked)
