"""Topics over the native protocol: create, delete, list, append, read."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from mainstem.broker.api.broker import Broker, StableStreamReader, check_fresh
from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.model.limits import KIB
from mainstem.model.message import Message
from mainstem.model.metadata import Topic
from mainstem.model.records.murmur2 import partition_of_key
from mainstem.model.records.record import Record, batches_of, build_batch, records_of
from mainstem.model.topic_name import check_topic_name, is_reserved_name
from mainstem.protocols.native.convert import message_of, size_of, wire_message
from mainstem.protocols.native.link import NativeConnectionLink, NativeService
from mainstem.protocols.visibility import Visibility
from mainstem.security.authorisation.acl import Operation
from mainstem.security.quotas import FETCH_BYTES, PRODUCE_BYTES
from mainstem.wire.native import answers, requests
from mainstem.wire.native.words import Ok

COMMIT_TIMEOUT_S: Final = 30.0
PLAIN_BYTES_MAX: Final = 32 << 20
BATCH_BYTES: Final = 512 * KIB
EARLIEST: Final = -2
LATEST: Final = -1
# A read follows its partition to at most this many other writers, and pauses before each.
WRITER_CHANGES_MAX: Final = 5
PAUSE_S: Final = 0.05
_MOVED: Final = frozenset({ErrorCode.NOT_WRITER, ErrorCode.WRITER_UNAVAILABLE, ErrorCode.TIMED_OUT})
_RECORD_BYTES: Final = 200  # overhead of a record, including most headers

# A partition and the indexes of its messages in the request.
Part = tuple[int, list[int]]


class NativeTopics:
    """Serves the topic requests of one connection."""

    def __init__(self, link: NativeConnectionLink, service: NativeService) -> None:
        self._link = link
        self._clock = service.clock
        self._metrics = service.metrics
        self._broker: Broker = service.broker
        self._turn = 0

    async def create_topic(self, word: requests.CreateTopic) -> Ok:
        """Create a topic."""
        check_topic_name(word.name)
        self._link.permissions.create_topic(word.name)
        _refuse_internal(word.name)
        await self._broker.topics.create(
            word.name,
            partitions=word.partitions,
            replication_factor=word.replication_factor,
            configs=word.configs,
        )
        return Ok()

    async def delete_topic(self, word: requests.DeleteTopic) -> Ok:
        """Delete a topic and its records."""
        self._link.permissions.topic(Operation.DELETE, word.name)
        _refuse_internal(word.name)
        await self._broker.topics.delete(word.name)
        return Ok()

    async def list_topics(self, _: requests.ListTopics) -> answers.TopicList:
        """List the topics that the client may see."""
        sees = self._link.permissions.sees_topic
        shown = [
            answers.WireTopic(
                name=topic.name, partitions=len(topic.streams), configs=dict(topic.configs)
            )
            for topic in self._broker.topics.all()
            if not topic.internal and sees(topic.name)
        ]
        return answers.TopicList(topics=shown)

    async def append(self, word: requests.Append) -> answers.Appended:
        """Store messages in a topic, in the named partition or by their keys."""
        topic = await self._topic_to_write(word.topic)
        now_ms = self._clock.wall_ms()
        messages = [message_of(wire, wire.key, now_ms) for wire in word.messages]
        parts = list(self._parts(topic, messages, word.partition))
        is_sure = word.durability == "committed"
        store = self._committed if is_sure else self._written
        places = await store(topic, messages, parts)
        wait_ms = self._link.charge(PRODUCE_BYTES, sum(map(size_of, word.messages)))
        if wait_ms:
            self._link.backpressure.hold(wait_ms)
        return answers.Appended(places=places)

    async def _committed(
        self, topic: Topic, messages: Sequence[Message], parts: Sequence[Part]
    ) -> list[answers.RecordPosition]:
        """Store all messages and wait until they are committed."""
        append = self._broker.streams.append
        jobs = [append(topic.name, part[0], _batch(messages, part)) for part in parts]
        try:
            async with asyncio.timeout(COMMIT_TIMEOUT_S):
                bases = await asyncio.gather(*jobs, return_exceptions=True)
        except TimeoutError:
            raise Unavailable(
                ErrorCode.TIMED_OUT,
                f"not known to be stored after {COMMIT_TIMEOUT_S:.0f} s; it may be stored later",
                subject=topic.name,
            ) from None
        failure = next((base for base in bases if isinstance(base, BaseException)), None)
        if failure is not None:
            raise failure
        return _places(parts, [int(base) for base in bases if not isinstance(base, BaseException)])

    async def _written(
        self, topic: Topic, messages: Sequence[Message], parts: Sequence[Part]
    ) -> list[answers.RecordPosition]:
        """Store all messages and return once the writer has them, before they are committed.

        For partitions of another node it waits for the commit: a stronger guarantee.
        """
        streams = self._broker.streams
        try:
            writers = [streams.partition(topic.name, part[0]) for part in parts]
            for writer in writers:
                check_fresh(writer)
        except Unavailable as error:
            if error.code is not ErrorCode.NOT_WRITER:
                raise
            return await self._committed(topic, messages, parts)
        batches = [_batch(messages, part) for part in parts]
        bases = [
            writer.stage(memoryview(batch), 0, len(batch))
            for writer, batch in zip(writers, batches, strict=True)
        ]
        streams.flush()
        for writer, base in zip(writers, bases, strict=True):
            if (failure := writer.failure(base)) is not None:
                raise failure
        return _places(parts, bases)

    async def read(self, word: requests.Read) -> answers.Records:
        """Read committed records of one partition."""
        self._link.permissions.topic(Operation.READ, word.topic)
        _refuse_internal(word.topic)
        reader, records, next_offset = await self._found(word)
        shown = [
            answers.WireRecord(
                offset=record.offset, message=wire_message(Message.of_record(record))
            )
            for record in records
        ]
        size_bytes = sum(size_of(each.message) for each in shown)
        self._metrics.messages_out += len(shown)
        wait_ms = self._link.charge(FETCH_BYTES, size_bytes)
        if wait_ms:
            self._link.backpressure.hold(wait_ms)
        return answers.Records(
            records=shown,
            next_offset=next_offset,
            start_offset=reader.start_offset,
            end_offset=reader.last_stable,
        )

    async def _found(self, word: requests.Read) -> tuple[StableStreamReader, list[Record], int]:
        """A reader of the partition, its visible records, and the next offset.

        Any node may be the writer; a read that waits for records continues when the writer changes.
        """
        loop = asyncio.get_running_loop()
        give_up = loop.time() + word.wait_ms / 1000
        changes = 0
        reader = await self._broker.streams.open_reader(word.topic, word.partition)
        start = _start(reader, word)
        while True:
            left_ms = max(0, int((give_up - loop.time()) * 1000))
            try:
                piece = await reader.next_piece(start, word.bytes_max, left_ms)
            except Unavailable as error:
                changes += 1
                if error.code not in _MOVED or changes > WRITER_CHANGES_MAX:
                    raise
                await asyncio.sleep(PAUSE_S)
                reader = await self._broker.streams.open_reader(word.topic, word.partition)
            else:
                if piece is not None:
                    batches = (piece.data, piece.aborted, piece.until_offset)
                    return reader, *await asyncio.to_thread(_records, *batches, start, word.limit)
                if not left_ms:
                    return reader, [], start

    async def _topic_to_write(self, name: str) -> Topic:
        self._link.permissions.topic(Operation.WRITE, name)
        check_topic_name(name)
        _refuse_internal(name)
        topic = self._broker.topics.by_name(name)
        if topic is None:
            self._link.permissions.create_topic(name)
            topic = await self._broker.topics.ensure(name)
        return topic

    def _parts(
        self, topic: Topic, messages: Sequence[Message], wanted: int | None
    ) -> Iterator[Part]:
        """The batches to write: messages by partition, in order, each of limited size."""
        count = len(topic.streams)
        if wanted is not None and wanted >= count:
            raise InvalidRequest(
                ErrorCode.UNKNOWN_TOPIC,
                f"no partition {wanted}; the topic has {count}",
                subject=topic.name,
            )
        self._turn += 1
        parts: dict[int, tuple[list[int], int]] = {}
        for at, message in enumerate(messages):
            if wanted is not None:
                partition = wanted
            elif message.key is not None:
                partition = partition_of_key(message.key, count)
            else:
                partition = self._turn % count
            size_bytes = _RECORD_BYTES + len(message.value or b"") + len(message.key or b"")
            members, so_far = parts.get(partition, ([], 0))
            if members and so_far + size_bytes > BATCH_BYTES:
                yield partition, members
                members, so_far = [], 0
            members.append(at)
            parts[partition] = members, so_far + size_bytes
        for partition, (members, _) in parts.items():
            yield partition, members


def _batch(messages: Sequence[Message], part: Part) -> bytearray:
    return build_batch([messages[at].to_record() for at in part[1]])


def _places(parts: Sequence[Part], bases: Sequence[int]) -> list[answers.RecordPosition]:
    """Partition and offset of each message, in the order of the request."""
    places: dict[int, answers.RecordPosition] = {}
    for (partition, members), base in zip(parts, bases, strict=True):
        for offset, at in enumerate(members, base):
            places[at] = answers.RecordPosition(partition=partition, offset=offset)
    return [places[at] for at in sorted(places)]


def _refuse_internal(name: str) -> None:
    if is_reserved_name(name):
        raise InvalidRequest(ErrorCode.RESERVED_NAME, "the topic is internal", subject=name)


def _start(reader: StableStreamReader, word: requests.Read) -> int:
    if word.offset == EARLIEST:
        return reader.start_offset
    if word.offset == LATEST:
        return reader.last_stable
    if not reader.start_offset <= word.offset <= reader.last_stable:
        raise InvalidRequest(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {word.offset} is not held",
            subject=f"{word.topic}-{word.partition}",
            remedy=f"use an offset from {reader.start_offset} to {reader.last_stable}",
        )
    return word.offset


def _records(
    data: bytes, aborted: list[tuple[int, int]], until: int, start: int, limit: int
) -> tuple[list[Record], int]:
    """The visible records, at most ``limit``, and the next offset."""
    visibility = Visibility(aborted)
    records: list[Record] = []
    try:
        for header, batch in batches_of(data):
            if header.until_offset <= start or not visibility.shows(header, batch):
                continue
            for record in records_of(batch, limit_bytes=PLAIN_BYTES_MAX):
                if record.offset >= start:
                    records.append(record)
                    if len(records) >= limit:
                        return records, record.offset + 1
    except (Corrupt, MainstemError):
        if not records:
            raise
        return records, records[-1].offset + 1
    return records, until
