"""Transactional clients that keep a journal of what they do and see.

    producer   writes transactions over three partitions
    chain      reads, transforms and writes, its positions within the transaction
    member     a chain that shares its input with others through a group
    reader     reads only what is committed, and asks for the stable ends now and then

Everything is librdkafka. Promises: each act is in the journal before it is done; what the calls do
not tell is never taken for an answer.
"""

import argparse
import contextlib
import os
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from tests.chaos.history import Outcome
from tests.chaos.load import PARTITIONS, seen
from tests.chaos.transaction_journal import FENCED, Journal
from tests.chaos.transaction_process import (
    ABORT_SHARE,
    TRANSACTION_TIMEOUT_MS,
    Ending,
    Gone,
    Unfinished,
)

CALL_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 60.0
SNAPSHOT_EVERY_S = 0.5
FENCING = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    }
)
T = TypeVar("T")


def insist(act: Callable[[], T]) -> T:
    """Call until there is an answer; what is wrong with the transaction is raised."""
    while True:
        try:
            return act()
        except SystemError:
            # confluent-kafka 2.16 raises a fatal error wherever callbacks happen to be served, and
            # trips over it there when more than one is; the same call again tells it properly.
            continue
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if reason.fatal():
                raise Gone(reason) from error
            if reason.txn_requires_abort():
                raise Unfinished(reason) from error
            if not reason.retriable():
                raise
            time.sleep(0.02)


def patiently(act: Callable[[], T]) -> T:
    """Ask until there is an answer: servers come and go."""
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    while True:
        try:
            return act()
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


class Transactional:
    """A transactional producer that keeps a journal."""

    def __init__(self, options: argparse.Namespace, journal: Journal) -> None:
        self.journal = journal
        self._name = f"{options.id}.{options.incarnation}"
        self._number = -1
        self._count = 0
        self._producer = Producer(
            connection_settings(options.bootstrap)
            | {
                "transactional.id": options.id,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 0,
                "retry.backoff.max.ms": 200,
            }
        )

    def start(self) -> None:
        """Take the transactional id over."""
        insist(lambda: self._producer.init_transactions(CALL_TIMEOUT_S))
        self.journal.note("ready")

    def begin(self) -> int:
        """Begin the next transaction; its number."""
        self._number += 1
        self._count = 0
        self.journal.note("begin", self._number)
        insist(self._producer.begin_transaction)
        return self._number

    def send(self, topic: str, partition: int, source: tuple[str, int, int] | None = None) -> None:
        """Write a record that was never written before."""
        number, index = self._number, self._count
        value = f"{self._name}.{number}:{index}"
        self.journal.note("send", number, (topic, partition), value, source)
        self._count += 1

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self.journal.note("sent", number, index, message.offset())
            else:
                self.journal.note("unsent", number, index, error.name())

        with self._failing():
            self._producer.produce(
                topic, value=value.encode(), partition=partition, on_delivery=delivered
            )
            self._producer.poll(0)

    def flush(self) -> None:
        """Let the records so far go out on their own."""
        with self._failing():
            self._producer.flush(CALL_TIMEOUT_S)

    def send_positions(self, consumer: Consumer, group: str, ends: list[TopicPartition]) -> None:
        """Let the group go on behind what this transaction has read."""
        positions = [(one.topic, one.partition, one.offset) for one in ends]
        self.journal.note("positions", self._number, group, positions)
        metadata = consumer.consumer_group_metadata()
        insist(lambda: self._producer.send_offsets_to_transaction(ends, metadata, CALL_TIMEOUT_S))
        self.journal.note("positioned", self._number)

    def commit(self) -> None:
        """Ask for the transaction to count, until there is an answer."""
        self.journal.note("wish", self._number, "commit")
        try:
            insist(lambda: self._producer.commit_transaction(CALL_TIMEOUT_S))
        except Unfinished as error:
            self._ended(Outcome.REFUSED, error)
            raise
        except Gone as error:
            reason: KafkaError = error.args[0]
            is_fenced = reason.code() in FENCING
            self._ended(FENCED if is_fenced else Outcome.UNKNOWN, error)
            raise
        self._ended(Outcome.OK)

    def abort(self, *, wished: bool) -> None:
        """Let the transaction count for nothing; noted as a wish where it is one."""
        if wished:
            self.journal.note("wish", self._number, "abort")
        insist(lambda: self._producer.abort_transaction(CALL_TIMEOUT_S))
        if wished:
            self._ended(Outcome.OK)

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Something before may have failed; what it was is said by whatever comes next."""
        try:
            yield
        except (KafkaException, SystemError) as error:
            raise Unfinished(error) from error

    def _ended(self, answer: str, error: Exception | None = None) -> None:
        self.journal.note("ended", self._number, answer, str(error or ""))


def produce(options: argparse.Namespace, journal: Journal, ending: Ending) -> None:
    """Write transactions of a few records over all partitions."""
    random = Random(f"{options.id}.{options.incarnation}")
    producer = Transactional(options, journal)
    producer.start()
    while not ending.wanted:
        time.sleep(random.uniform(0, 2 * options.pause_s))
        try:
            producer.begin()
            for _ in range(random.randint(1, 6)):
                producer.send(options.topic, random.randrange(PARTITIONS))
                if random.random() < 0.2:
                    producer.flush()
            if random.random() < ABORT_SHARE:
                producer.abort(wished=True)
            else:
                producer.commit()
        except Unfinished:
            producer.abort(wished=False)


class Chain:
    """Reads one topic and writes another, each input once."""

    def __init__(self, options: argparse.Namespace, journal: Journal) -> None:
        self._options = options
        self._journal = journal
        self._random = Random(f"{options.id}.{options.incarnation}")
        self._producer = Transactional(options, journal)
        self._session = 0
        self._assigned: list[TopicPartition] = []
        self._changed = False
        self._consumer = Consumer(
            reader_settings(options.bootstrap, options.group)
            | {"enable.auto.commit": False, "session.timeout.ms": 6_000}
        )

    def start(self) -> None:
        """Take over from whoever was there before."""
        self._producer.start()
        if self._options.role == "member":
            self._consumer.subscribe(
                [self._options.topic], on_assign=self._on_assign, on_revoke=self._on_revoke
            )
            return
        self._assigned = [
            TopicPartition(self._options.topic, number) for number in range(PARTITIONS)
        ]
        self._rewind()

    def turn(self) -> None:
        """Process what there is, in one transaction."""
        self._changed = False
        found = self._consumer.consume(self._random.randint(1, 30), 0.2)
        messages = [one for one in found if one.error() is None]
        if self._changed or not messages:
            # What came before partitions were taken away is somebody else's now.
            if messages:
                self._rewind()
            return
        records = [(*stream, offset, value) for stream, offset, value in map(seen, messages)]
        self._journal.note("reads", self._session, records)
        try:
            self._process(records)
        except Unfinished:
            self._producer.abort(wished=False)
            self._rewind()

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()

    def _process(self, records: list[tuple[str, int, int, str]]) -> None:
        number = self._producer.begin()
        self._journal.note("inputs", number, records)
        ends: dict[tuple[str, int], int] = {}
        for topic, partition, offset, _ in records:
            self._producer.send(self._options.output, partition, (topic, partition, offset))
            ends[topic, partition] = offset + 1
        positions = [TopicPartition(*stream, offset) for stream, offset in ends.items()]
        self._producer.send_positions(self._consumer, self._options.group, positions)
        if self._random.random() < ABORT_SHARE:
            self._producer.abort(wished=True)
            self._rewind()
        else:
            self._producer.commit()
        time.sleep(self._random.uniform(0, 2 * self._options.pause_s))

    def _rewind(self) -> None:
        """Go on where the group stands."""
        self._session += 1
        if not self._assigned:
            return
        started = time.monotonic()
        known = patiently(lambda: self._consumer.committed(self._assigned, CALL_TIMEOUT_S))
        positions = [(one.topic, one.partition, one.offset) for one in known]
        self._journal.note("observed", self._options.group, started, positions)
        self._consumer.assign(
            [TopicPartition(one.topic, one.partition, max(one.offset, 0)) for one in known]
        )

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._changed = True
        self._assigned = [TopicPartition(one.topic, one.partition) for one in partitions]
        self._rewind()

    def _on_revoke(self, consumer: Consumer, _: list[TopicPartition]) -> None:
        self._changed = True
        self._assigned = []
        consumer.unassign()


def process(options: argparse.Namespace, journal: Journal, ending: Ending) -> None:
    """Run a chain."""
    chain = Chain(options, journal)
    chain.start()
    while not ending.wanted:
        chain.turn()
    chain.close()


def read(options: argparse.Namespace, journal: Journal, ending: Ending) -> None:
    """Read everything from the start and take a snapshot now and then, and one at the end."""
    settings = reader_settings(options.bootstrap, "unused") | {"enable.partition.eof": True}
    consumer = Consumer(settings)
    places = [
        TopicPartition(topic, number, 0)
        for topic in options.topic.split(",")
        for number in range(PARTITIONS)
    ]
    consumer.assign(places)
    reached = {(one.topic, one.partition): 0 for one in places}
    last = False
    while not last:
        last = ending.wanted
        started = time.monotonic()
        stable = {(one.topic, one.partition): stable_end(consumer, one) for one in places}
        ended = time.monotonic()
        until = ended + (0 if last else SNAPSHOT_EVERY_S)
        while time.monotonic() < until or any(reached[one] < stable[one] for one in stable):
            take(consumer.consume(500, timeout=0.1), reached, journal)
        ends = [(*stream, end) for stream, end in stable.items()]
        journal.note("snapshot", started, ended, ends)
    consumer.close()


def stable_end(consumer: Consumer, place: TopicPartition) -> int:
    """Below which offset everything is decided."""
    _, until = patiently(lambda: consumer.get_watermark_offsets(place, CALL_TIMEOUT_S))
    return int(until)


def take(messages: list[Message], reached: dict[tuple[str, int], int], journal: Journal) -> None:
    """Note what was read and how far that is."""
    records = []
    for message in messages:
        error = message.error()
        if error is None:
            stream, offset, value = seen(message)
            records.append((*stream, offset, value))
            reached[stream] = offset + 1
        elif error.code() == KafkaError._PARTITION_EOF:
            topic, partition, position = message.topic(), message.partition(), message.offset()
            assert topic is not None
            assert partition is not None
            assert position is not None
            reached[topic, partition] = position
    if records:
        journal.note("reads", 0, records)


def reader_settings(bootstrap: str, group: str) -> dict[str, str | int | bool]:
    """Settings of a consumer that sees only what is committed."""
    return connection_settings(bootstrap) | {
        "group.id": group,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "check.crcs": True,
    }


def connection_settings(bootstrap: str) -> dict[str, str | int | bool]:
    """How every client meets a server that comes and goes."""
    told = os.environ.get("MAINSTEM_CHAOS_DEBUG")
    return {
        "bootstrap.servers": bootstrap,
        "reconnect.backoff.max.ms": 200,
        # librdkafka 2.16 drops the only broker while it is away, and with it, for ever, a
        # send_offsets_to_transaction() that waits for this broker to come back.
        "metadata.recovery.strategy": "none",
        "log_level": 7 if told else 0,
        **({"debug": told} if told else {}),
    }
