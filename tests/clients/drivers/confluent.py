"""Runs errands with confluent-kafka (librdkafka)."""

from itertools import count
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.clients.errand import Errand, from_arguments
from tests.clients.records import Headers, Record, encode, read_file


def create(errand: Errand) -> None:
    topic = NewTopic(errand.topic, errand.partitions, config=errand.configs)
    admin = AdminClient({"bootstrap.servers": errand.bootstrap})
    for future in admin.create_topics([topic]).values():
        future.result()


def produce(errand: Errand) -> None:
    settings: dict[str, str | int] = {"bootstrap.servers": errand.bootstrap}
    if errand.codec:
        settings["compression.type"] = errand.codec
    if errand.max_record_bytes:
        settings["message.max.bytes"] = errand.request_bytes
    producer = Producer(settings)
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)

    for record in read_file(Path(errand.input)):
        for _ in count():
            try:
                producer.produce(
                    errand.topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=-1 if record.partition is None else record.partition,
                    timestamp=record.timestamp_ms or 0,
                    on_delivery=delivered,
                )
                break
            except BufferError:
                # The local queue is full, as documented: serve callbacks and try again.
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()
    if failures:
        raise KafkaException(failures[0])


def consume(errand: Errand) -> None:
    consumer = _group_consumer(errand)
    consumer.subscribe([errand.topic])
    with Path(errand.output).open("w") as output:
        for _ in range(errand.count):
            output.write(encode(_next(consumer)) + "\n")
    consumer.close()


def read(errand: Errand) -> None:
    consumer = Consumer(
        {"bootstrap.servers": errand.bootstrap, "group.id": "unused", "check.crcs": True}
    )
    if errand.timestamp_ms is not None:
        wanted = TopicPartition(errand.topic, errand.partition, errand.timestamp_ms)
        [start] = consumer.offsets_for_times([wanted], timeout=30)
    else:
        assert errand.offset is not None
        start = TopicPartition(errand.topic, errand.partition, errand.offset)
    consumer.assign([start])
    with Path(errand.output).open("w") as output:
        for _ in range(errand.count):
            output.write(encode(_next(consumer)) + "\n")
    consumer.close()


def member(errand: Errand) -> None:
    consumer = _group_consumer(errand)
    consumer.subscribe([errand.topic])
    with Path(errand.output).open("w", buffering=1) as output:
        while True:
            output.write(encode(_next(consumer)) + "\n")


def _group_consumer(errand: Errand) -> Consumer:
    settings: dict[str, str | int | bool] = {
        "bootstrap.servers": errand.bootstrap,
        "group.id": errand.group,
        "auto.offset.reset": "earliest",
        "check.crcs": True,
    }
    if errand.session_timeout_ms:
        settings["session.timeout.ms"] = errand.session_timeout_ms
    return Consumer(settings)


def _next(consumer: Consumer) -> Record:
    while True:
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is not None:
            # Until the topic's leader is known librdkafka reports it and goes on by itself.
            if error.retriable() or error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                continue
            raise KafkaException(error)
        return Record(
            key=message.key(),
            value=message.value(),
            headers=_headers(message),
            timestamp_ms=message.timestamp()[1],
            partition=message.partition(),
            offset=message.offset(),
        )


def _headers(message: Message) -> Headers:
    found = message.headers() or []
    assert isinstance(found, list)
    return tuple((name, value) for name, value in found if not isinstance(value, str))


if __name__ == "__main__":
    asked = from_arguments()
    {"create": create, "produce": produce, "consume": consume, "read": read, "member": member}[
        asked.op
    ](asked)
