"""Producers and readers that keep a history while servers die under them.

Everything is librdkafka with acks=all; its own threads retry and reconnect. Promises: each record
carries a value of its own; a record counts as acknowledged only when its delivery report says so;
a reader notes records in the order in which they came.
"""

import threading
import time
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.chaos.group_journal import GroupJournal
from tests.chaos.history import EndRead, History, Outcome, Read, Resumed, Sent, Stream

PARTITIONS = 3
FLUSH_TIMEOUT_S = 120.0
RATE_PER_S = 1_500
DRAIN_TIMEOUT_S = 60.0


class Loader:
    """A producer thread that sends to every partition of a topic in turn."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        history: History,
        *,
        idempotent: bool,
        rate_per_s: int = RATE_PER_S,
    ) -> None:
        self._rate_per_s = rate_per_s
        self.name = f"{topic}-{'idempotent' if idempotent else 'plain'}"
        self.acknowledged = 0
        self.reached = [0] * PARTITIONS  # how many were acknowledged in each partition
        self._topic = topic
        self._history = history
        self._stopping = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": idempotent,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.max.ms": 200,
                "log_level": 2,
            }
        )
        self.fatal: KafkaError | None = None
        self._thread = threading.Thread(target=self._run, name=self.name)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self.abandon()

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def abandon(self) -> None:
        """Send nothing more; what has no answer by now stays unknown."""
        self._stopping.set()
        self._thread.join()
        self._producer.poll(0)
        self._producer.purge()

    def finish(self) -> None:
        """Send nothing more and wait until the fate of every record is known."""
        self._stopping.set()
        self._thread.join()
        left = self._producer.flush(FLUSH_TIMEOUT_S)
        assert not left, f"{self.name}: {left} records still without an answer"
        assert self.fatal is None, f"{self.name}: {self.fatal}"

    def _run(self) -> None:
        number = 0
        began = time.monotonic()
        while not self._stopping.is_set():
            due = int((time.monotonic() - began) * self._rate_per_s)
            while number < due:
                if not self._send(number):
                    break
                number += 1
            self._producer.poll(0.005)

    def _send(self, number: int) -> bool:
        stream = (self._topic, number % PARTITIONS)
        sent = Sent(self.name, stream, f"{self.name}-{number}", time.monotonic())
        try:
            self._producer.produce(
                self._topic,
                value=sent.value.encode().ljust(100, b"."),
                # A key of its own lets every record live in a compacted topic too.
                key=sent.value.encode(),
                partition=stream[1],
                on_delivery=lambda error, message: self._delivered(sent, error, message),
            )
        except BufferError:
            # The queue holds all it may while the server is away.
            return False
        self._history.sent.append(sent)
        return True

    def _delivered(self, sent: Sent, error: KafkaError | None, message: Message) -> None:
        sent.ended = time.monotonic()
        if error is not None:
            if error.fatal():
                self.fatal = error
            return
        sent.outcome = Outcome.OK
        offset = message.offset()
        sent.offset = offset if offset is not None and offset >= 0 else None
        self.acknowledged += 1
        self.reached[sent.stream[1]] += 1


class Reader:
    """A thread that reads every partition of the topics from the start, without a group."""

    def __init__(self, bootstrap: str, topics: list[str], history: History) -> None:
        self._history = history
        self._stopping = threading.Event()
        self._consumer = Consumer(_reader_settings(bootstrap, "unused"))
        self._consumer.assign(
            [TopicPartition(topic, number, 0) for topic in topics for number in range(PARTITIONS)]
        )
        self._thread = threading.Thread(target=self._run, name="reader")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            for message in self._consumer.consume(500, timeout=0.1):
                if message.error() is None:
                    stream, offset, value = seen(message)
                    self._history.reads.append(Read("reader", 0, stream, offset, value))


class EndReader:
    """A thread that asks for the end of one partition after the other, again and again."""

    def __init__(self, bootstrap: str, topics: list[str], history: History) -> None:
        self._history = history
        self._streams = [(topic, number) for topic in topics for number in range(PARTITIONS)]
        self._stopping = threading.Event()
        self._consumer = Consumer(_reader_settings(bootstrap, "unused"))
        self._thread = threading.Thread(target=self._run, name="end reader")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            for stream in self._streams:
                started = time.monotonic()
                try:
                    _, end = self._consumer.get_watermark_offsets(
                        TopicPartition(*stream), timeout=2, cached=False
                    )
                except KafkaException:
                    continue  # no answer says nothing
                self._history.ends.append(EndRead(stream, started, end))
            self._stopping.wait(0.05)


class GroupReader:
    """A group with one member that commits as it goes and is sometimes replaced by a new one."""

    def __init__(self, bootstrap: str, topic: str, history: History) -> None:
        self.group = f"group-{topic}"
        self.received = 0
        self.bootstrap = bootstrap  # for the next member
        self._topic = topic
        self._history = history
        self._session = 0
        # Where the group may resume: the last commit that was confirmed and any tried since.
        self._allowed: dict[Stream, set[int]] = {}
        self._resuming: set[Stream] = set()
        self._journal = GroupJournal()
        self._consumer = self._join()

    @property
    def committed_everywhere(self) -> bool:
        """Whether the group has tried to commit in every partition."""
        return len(self._allowed) == PARTITIONS

    @property
    def resumed_everywhere(self) -> bool:
        """Whether the present member has begun to read wherever its group had committed."""
        return not self._resuming

    def turn(self, seconds: float) -> None:
        """Read and commit for a while; commits that fail may or may not have been kept."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            messages: list[Message] = []
            # One by one: what comes after a new assignment must not be taken for what came before.
            while len(messages) < 200 and (found := self._consumer.poll(0 if messages else 0.1)):
                if (error := found.error()) is None:
                    self._note(found)
                    messages.append(found)
                else:
                    self._journal.note(f"poll: {error}")
            if messages:
                self._commit(messages)

    def described(self) -> str:
        """What the present member reads, how far it is and what it did last; never fails."""
        try:
            places = self._consumer.position(self._consumer.assignment())
        except (KafkaException, RuntimeError) as error:
            places = []
            self._journal.note(f"no assignment is known: {error}")
        read = [f"{one.topic}-{one.partition} at {one.offset}" for one in places]
        return f"{self.group} reads {read or 'nothing'}; its member:\n{self._journal.text()}"

    def replace_member(self) -> None:
        """The member leaves without committing and another takes its place."""
        self._consumer.close()
        self._session += 1
        self._consumer = self._join()
        self._resuming = set(self._allowed)

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()

    def _join(self) -> Consumer:
        settings = _reader_settings(self.bootstrap, self.group)
        settings |= {"enable.auto.commit": False, "session.timeout.ms": 6_000}
        settings |= {"debug": "cgrp", "log_level": 7}
        consumer = Consumer(settings, logger=self._journal.logger)
        consumer.subscribe([self._topic], on_assign=self._begin_anew)
        return consumer

    def _begin_anew(self, _consumer: Consumer, _places: list[TopicPartition]) -> None:
        """The member joined, perhaps again after it was thought dead: it begins where it stood."""
        self._session += 1
        self._resuming = set(self._allowed)

    def _note(self, message: Message) -> None:
        stream, offset, value = seen(message)
        self.received += 1
        if stream in self._resuming:
            self._resuming.discard(stream)
            allowed = frozenset(self._allowed[stream])
            self._history.resumed.append(Resumed(self.group, stream, offset, allowed))
        self._history.reads.append(
            Read(f"{self.group}-{self._session}", self._session, stream, offset, value)
        )

    def _commit(self, messages: list[Message]) -> None:
        ends: dict[Stream, int] = {}
        for message in messages:
            stream, offset, _ = seen(message)
            ends[stream] = max(ends.get(stream, 0), offset + 1)
        for stream, until in ends.items():
            self._allowed.setdefault(stream, {0}).add(until)
        offsets = [TopicPartition(topic, number, until) for (topic, number), until in ends.items()]
        try:
            confirmed = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            # The server may have died before or after it kept the commit.
            self._journal.note(f"commit: {error}")
            return
        for one in confirmed or []:
            if one.error is None:
                self._allowed[one.topic, one.partition] = {one.offset}


def create_topics(bootstrap: str, topics: dict[str, dict[str, str]], *, replicas: int = -1) -> None:
    """Create the topics of a load, each with its settings."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = [NewTopic(n, PARTITIONS, replicas, config=settings) for n, settings in topics.items()]
    for future in admin.create_topics(new).values():
        future.result(30)


def resume_all(bootstrap: str, group: GroupReader, history: History, topic: str) -> None:
    """Let a group read in every partition of its topic, with a new record in each to be found."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 2})
    for number in range(PARTITIONS):
        sent = Sent("last", (topic, number), f"last-{number}", time.monotonic())
        history.sent.append(sent)
        value = sent.value.encode()
        producer.produce(topic, value=value, key=value, partition=number)
    assert not producer.flush(FLUSH_TIMEOUT_S), "the node takes no records"
    deadline = time.monotonic() + DRAIN_TIMEOUT_S
    while not group.resumed_everywhere:
        assert time.monotonic() < deadline, "the group did not resume"
        group.turn(0.1)


def read_all(bootstrap: str, topics: list[str]) -> dict[Stream, list[tuple[int, str]]]:
    """Every record of every partition, once all is quiet."""
    consumer = Consumer(_reader_settings(bootstrap, "unused"))
    ends: dict[Stream, int] = {}
    for topic in topics:
        for number in range(PARTITIONS):
            _, until = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=30)
            ends[topic, number] = until
    found: dict[Stream, list[tuple[int, str]]] = {stream: [] for stream in ends}
    positions = dict.fromkeys(ends, 0)
    consumer.assign([TopicPartition(topic, number, 0) for topic, number in ends])
    deadline = time.monotonic() + DRAIN_TIMEOUT_S
    while any(positions[stream] < ends[stream] for stream in ends):
        assert time.monotonic() < deadline, f"the last reading stopped at {positions} of {ends}"
        for message in consumer.consume(1_000, timeout=0.5):
            if message.error() is None:
                stream, offset, value = seen(message)
                found[stream].append((offset, value))
                positions[stream] = offset + 1
    consumer.close()
    return found


def seen(message: Message) -> tuple[Stream, int, str]:
    """A received record in the history's words."""
    topic, partition = message.topic(), message.partition()
    offset, value = message.offset(), message.value()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    assert isinstance(value, bytes)
    return (topic, partition), offset, value.rstrip(b".").decode()


def _reader_settings(bootstrap: str, group: str) -> dict[str, str | int | bool]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "check.crcs": True,
        "reconnect.backoff.max.ms": 200,
        "log_level": 2,
    }
