"""Transactional producers of four clients behind one face, and a reader that all are judged by."""

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import time
import warnings
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

import aiokafka
from aiokafka.errors import KafkaError as AioKafkaError
from aiokafka.structs import OffsetAndMetadata as AioOffset
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import Producer as LibrdkafkaProducer
from tests.clients.client import java_command

with warnings.catch_warnings():
    # It reads its schemas by a function that Python 3.11 is about to remove.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    from kafka.admin import AbortTransactionSpec, KafkaAdminClient
    from kafka.errors import KafkaError as KafkaPythonError
    from kafka.structs import OffsetAndMetadata
    from kafka.structs import TopicPartition as PythonPartition

__all__ = [
    "CLIENTS",
    "AbortTransactionSpec",
    "AioKafka",
    "Confluent",
    "Fenced",
    "Java",
    "KafkaAdminClient",
    "KafkaPython",
    "KafkaPythonError",
    "PythonPartition",
    "Transactional",
    "committed",
    "read",
]

T = TypeVar("T")
TIMEOUT_S = 30.0


class Fenced(Exception):
    """The client was told that it, or its transaction, is no longer welcome."""


class Transactional(Protocol):
    """A producer with a transactional id."""

    def begin(self) -> None: ...
    def send(self, topic: str, value: str, partition: int = 0) -> None: ...
    def send_offset(self, group: str, topic: str, offset: int) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class Confluent:
    """librdkafka, the older flow: partitions are added first."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._bootstrap = bootstrap
        self._producer = LibrdkafkaProducer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self._do(lambda: self._producer.init_transactions(TIMEOUT_S))

    def begin(self) -> None:
        self._do(self._producer.begin_transaction)

    def send(self, topic: str, value: str, partition: int = 0) -> None:
        failed: list[object] = []

        def report(error: object, _: object) -> None:
            if error is not None:
                failed.append(error)

        self._producer.produce(topic, value.encode(), partition=partition, on_delivery=report)
        self._do(lambda: self._producer.flush(TIMEOUT_S))
        if failed:
            raise Fenced(failed)

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})
        try:
            self._do(
                lambda: self._producer.send_offsets_to_transaction(
                    [TopicPartition(topic, 0, offset)], consumer.consumer_group_metadata()
                )
            )
        finally:
            consumer.close()

    def commit(self) -> None:
        self._do(lambda: self._producer.commit_transaction(TIMEOUT_S))

    def abort(self) -> None:
        self._do(lambda: self._producer.abort_transaction(TIMEOUT_S))

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(0)

    def _do(self, act: Any) -> None:
        try:
            act()
        except KafkaException as error:
            raise Fenced(error) from error


class AioKafka:
    """aiokafka, the older flow in asyncio; its loop runs while something is asked of it."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._loop = asyncio.new_event_loop()

        async def start() -> aiokafka.AIOKafkaProducer:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
            )
            await producer.start()
            return producer

        self._producer = self._loop.run_until_complete(start())

    def begin(self) -> None:
        self._do(self._producer.begin_transaction())

    def send(self, topic: str, value: str, partition: int = 0) -> None:
        self._do(self._producer.send_and_wait(topic, value.encode(), partition=partition))

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        offsets = {AioPartition(topic, 0): AioOffset(offset, "")}
        self._do(self._producer.send_offsets_to_transaction(offsets, group))

    def commit(self) -> None:
        self._do(self._producer.commit_transaction())

    def abort(self) -> None:
        self._do(self._producer.abort_transaction())

    def close(self) -> None:
        self._loop.run_until_complete(self._producer.stop())
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            self._loop.run_until_complete(asyncio.wait_for(work, TIMEOUT_S))
        except AioKafkaError as error:
            raise Fenced(error) from error


class KafkaPython:
    """kafka-python."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
        )
        self._do(self._producer.init_transactions)

    def begin(self) -> None:
        self._do(self._producer.begin_transaction)

    def send(self, topic: str, value: str, partition: int = 0) -> None:
        self._do(
            lambda: self._producer.send(topic, value.encode(), partition=partition).get(TIMEOUT_S)
        )

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        offsets = {PythonPartition(topic, 0): OffsetAndMetadata(offset, "", -1)}
        self._do(lambda: self._producer.send_offsets_to_transaction(offsets, group))

    def commit(self) -> None:
        self._do(self._producer.commit_transaction)

    def abort(self) -> None:
        self._do(self._producer.abort_transaction)

    def close(self) -> None:
        self._producer.close(timeout=1)
        with warnings.catch_warnings():
            # Sockets of a node that was killed are left to the garbage collector.
            warnings.simplefilter("ignore", ResourceWarning)
            del self._producer
            gc.collect()

    def _do(self, act: Any) -> None:
        try:
            act()
        except KafkaPythonError as error:
            raise Fenced(error) from error


class Java:
    """Kafka's own client, transaction version 2: partitions join by being written to."""

    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = 60_000) -> None:
        # The command is made of our own driver and the arguments of the test.
        self._process = subprocess.Popen(
            [*java_command("Transactions"), bootstrap, transactional_id, str(timeout_ms)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )
        self._do("init")

    def begin(self) -> None:
        self._do("begin")

    def send(self, topic: str, value: str, partition: int = 0) -> None:
        self._do(f"send {topic} {partition} {value}")

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        self._do(f"offset {group} {topic} {offset}")

    def commit(self) -> None:
        self._do("commit")

    def abort(self) -> None:
        self._do("abort")

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def _do(self, line: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        if answer != "ok":
            raise Fenced(answer)


CLIENTS: dict[str, Any] = {
    "confluent-kafka": Confluent,
    "aiokafka": AioKafka,
    "kafka-python": KafkaPython,
    "java": Java,
}


def read(
    bootstrap: str,
    topic: str,
    *,
    partition: int = 0,
    isolation: str = "read_committed",
    timeout_s: float = TIMEOUT_S,
) -> list[str]:
    """Every value up to the end that the isolation level lets see now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    values: list[str] = []
    deadline = time.monotonic() + timeout_s
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                if error.name() == "_PARTITION_EOF":
                    return values
                raise KafkaException(error)
            values.append((message.value() or b"").decode())
    finally:
        consumer.close()
    raise AssertionError(f"no end of {topic} within {timeout_s} s, {len(values)} records so far")


def committed(bootstrap: str, group: str, topic: str) -> int:
    """The position that a consumer of the group would begin at; it waits for a stable one."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "isolation.level": "read_committed"}
    )
    try:
        [found] = consumer.committed([TopicPartition(topic, 0)], timeout=TIMEOUT_S)
        return int(found.offset)
    finally:
        consumer.close()
