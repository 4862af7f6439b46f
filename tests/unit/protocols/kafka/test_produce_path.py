"""Produce requests of the same shape are answered as if each had been decoded."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.model.ids import NO_TOPIC_ID, Offset, PartitionIndex, StreamId
from mainstem.model.records.batch import HEADER, stamp
from mainstem.model.records.record import Record, build_batch
from mainstem.protocols.kafka.call import Peer
from mainstem.protocols.kafka.handlers.records.produce import ProducePath
from mainstem.protocols.kafka.handlers.records.produce_shape import (
    SHAPES_MAX,
    ProduceShape,
    ProduceShapes,
)
from mainstem.protocols.kafka.response_queue import Replies
from mainstem.telemetry.metrics import Metrics
from mainstem.wire.kafka import codec
from mainstem.wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

TOPIC_ID = b"0123456789abcdef"


class MemoryPartition:
    """A stream in memory that commits when it is told to."""

    def __init__(self, partition: int) -> None:
        self.id = StreamId(NO_TOPIC_ID, PartitionIndex(partition))
        self.start_offset = 0
        self.next_offset = 0
        self.committed = 0
        self.append_time_ms = -1
        self.short_of_replicas = False
        self.is_internal = False
        self.is_lone = False
        self.lapsed: Callable[[], MainstemError | None] | None = None
        self.topic = "t"
        self.stored: list[bytes] = []
        self.refuse: MainstemError | None = None
        self.fail: MainstemError | None = None
        self.waiting: list[tuple[int, Any]] = []

    def stage(self, buf: memoryview, start: int, until: int, *, verified: bool = False) -> Offset:
        if self.refuse is not None:
            raise self.refuse
        base = self.next_offset
        stamp(buf, start, base, 0)
        self.stored.append(bytes(buf[start:until]))
        self.next_offset += HEADER.unpack_from(buf, start)[12]
        return Offset(base)

    def failure(self, base: Offset) -> MainstemError | None:
        return self.fail

    def when_written(self, base: Offset, settled: Any) -> bool:
        if base < self.committed:
            return True
        self.waiting.append((base, settled))
        return False

    def commit(self) -> None:
        self.committed = self.next_offset
        waiting, self.waiting = self.waiting, []
        for _, settled in waiting:
            settled(None)


class MemoryStreams:
    """Three partitions of one topic."""

    def __init__(self, *, commit_at_once: bool) -> None:
        self.partitions = [MemoryPartition(partition) for partition in range(3)]
        self.commit_at_once = commit_at_once

    def partition(self, topic: str, partition: int) -> MemoryPartition:
        if topic != "t" or partition >= 3:
            raise InvalidRequest(ErrorCode.UNKNOWN_TOPIC)
        return self.partitions[partition]

    def partition_by_id(self, topic: bytes, partition: int) -> MemoryPartition:
        return self.partition("t" if topic == TOPIC_ID else "", partition)

    def flush(self) -> None:
        if self.commit_at_once:
            for writer in self.partitions:
                writer.commit()


class Counter:
    """The part of the counter that produce requests need."""

    def __init__(self, streams: MemoryStreams) -> None:
        self.streams = streams
        self.transactions = None


class Wire:
    """A connection that keeps what is sent, and the produce path on it."""

    def __init__(self, streams: MemoryStreams) -> None:
        self.sent = b""
        self.is_closed = False
        replies = Replies(self.send, lambda call: call())
        counter: Any = Counter(streams)
        self.path = ProducePath(counter, replies, self, Metrics(), Peer("h", 1, "h", 2))

    def send(self, chunks: Sequence[Any]) -> None:
        self.sent += b"".join(bytes(chunk) for chunk in chunks)

    def close(self) -> None:
        self.is_closed = True

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def take(self, *frames: bytes) -> None:
        for frame in frames:
            buf = bytearray(frame)
            self.path.take(buf, memoryview(buf), 4, len(buf))
        self.path.finish()

    def answers(self, version: int) -> list[tuple[int, Any]]:
        found, at = [], 0
        while at < len(self.sent):
            size = int.from_bytes(self.sent[at : at + 4], "big")
            until = at + 4 + size
            correlation, body = codec.decode_response_header(0, version, self.sent, at + 4, until)
            response = codec.decode_response(0, version, self.sent, body, until)
            found.append((correlation, response))
            at = until
        return found


def frame(
    correlation: int, partitions: Sequence[int], *, version: int, acks: int, value: bytes = b"v"
) -> bytes:
    parts = []
    for partition in partitions:
        batch = build_batch([Record(0, 1, b"k", value)] * (1 + partition))
        parts.append(PartitionProduceData(index=partition, records=memoryview(batch)))
    request = ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name="t", topic_id=TOPIC_ID, partition_data=parts)],
    )
    chunks = codec.encode_request_frame(0, version, correlation, "client", request)
    return b"".join(bytes(chunk) for chunk in chunks)  # type: ignore[arg-type]


def offsets(answers: list[tuple[int, Any]]) -> list[tuple[int, list[tuple[int, int, int]]]]:
    return [
        (
            correlation,
            [
                (part.index, part.error_code, part.base_offset)
                for topic in response.responses
                for part in topic.partition_responses
            ],
        )
        for correlation, response in answers
    ]


@pytest.mark.parametrize("version", range(3, 14))
def test_requests_of_one_shape_get_their_own_offsets(version: int) -> None:
    wire = Wire(MemoryStreams(commit_at_once=True))

    wire.take(*(frame(n, [1], version=version, acks=-1) for n in range(4)))

    expected = [(n, [(1, 0, 2 * n)]) for n in range(4)]
    assert offsets(wire.answers(version)) == expected


@given(
    bursts=st.lists(
        st.lists(
            st.tuples(
                st.lists(st.integers(0, 3), min_size=1, max_size=2, unique=True),
                st.sampled_from([-1, 1, 0, 7]),
                st.integers(0, 200),
            ),
            min_size=1,
            max_size=6,
        ),
        max_size=5,
    ),
    version=st.integers(3, 13),
    commit_at_once=st.booleans(),
)
def test_a_remembered_shape_changes_no_answer(
    bursts: list[list[tuple[list[int], int, int]]], version: int, commit_at_once: bool
) -> None:
    """The same requests on one connection, and each on a connection of its own."""
    together = MemoryStreams(commit_at_once=commit_at_once)
    apart = MemoryStreams(commit_at_once=commit_at_once)
    wire = Wire(together)
    single: list[tuple[int, Any]] = []
    lone_wires = []
    number = 0
    for burst in bursts:
        frames = []
        for partitions, acks, size in burst:
            frames.append(frame(number, partitions, version=version, acks=acks, value=b"x" * size))
            number += 1
        wire.take(*frames)
        for each in frames:
            lone = Wire(apart)
            lone.take(each)
            lone_wires.append(lone)
    for writer in (*together.partitions, *apart.partitions):
        writer.commit()
    for lone in lone_wires:
        single += lone.answers(version)

    assert offsets(wire.answers(version)) == offsets(single)
    for mine, theirs in zip(together.partitions, apart.partitions, strict=True):
        assert mine.stored == theirs.stored


def test_an_answer_waits_until_its_batch_is_committed() -> None:
    streams = MemoryStreams(commit_at_once=False)
    wire = Wire(streams)
    wire.take(frame(1, [0], version=9, acks=-1), frame(2, [0], version=9, acks=-1))
    assert wire.sent == b""

    streams.partitions[0].commit()

    assert offsets(wire.answers(9)) == [(1, [(0, 0, 0)]), (2, [(0, 0, 1)])]


@pytest.mark.parametrize("partitions", [[0], [0, 1]])
def test_acks_1_waits_for_the_write_only_where_there_are_other_copies(
    partitions: list[int],
) -> None:
    wire = Wire(MemoryStreams(commit_at_once=False))

    wire.take(*(frame(n, partitions, version=9, acks=1) for n in (1, 2)))

    assert [correlation for correlation, _ in wire.answers(9)] == [1, 2]


@pytest.mark.parametrize("partitions", [[0], [0, 1]])
def test_acks_1_waits_for_the_commit_where_there_is_no_other_copy(partitions: list[int]) -> None:
    streams = MemoryStreams(commit_at_once=False)
    for writer in streams.partitions:
        writer.is_lone = True
    wire = Wire(streams)

    wire.take(*(frame(n, partitions, version=9, acks=1) for n in (1, 2)))
    assert wire.sent == b""
    for writer in streams.partitions:
        writer.commit()

    assert [correlation for correlation, _ in wire.answers(9)] == [1, 2]


def test_acks_0_is_never_answered() -> None:
    wire = Wire(MemoryStreams(commit_at_once=True))

    wire.take(*(frame(n, [0], version=9, acks=0) for n in range(3)))

    assert wire.sent == b""
    assert not wire.is_closed


def test_a_refused_batch_without_acks_closes_the_connection() -> None:
    wire = Wire(MemoryStreams(commit_at_once=True))

    wire.take(frame(1, [3], version=9, acks=0))

    assert wire.is_closed


def test_a_batch_refused_after_its_shape_was_learned_says_why() -> None:
    streams = MemoryStreams(commit_at_once=True)
    wire = Wire(streams)
    wire.take(frame(1, [0], version=9, acks=1))
    streams.partitions[0].refuse = Corrupt("bent")

    wire.take(frame(2, [0], version=9, acks=1))

    assert offsets(wire.answers(9)) == [(1, [(0, 0, 0)]), (2, [(0, 2, -1)])]


def test_a_topic_that_begins_to_stamp_the_time_tells_it_in_the_very_next_answer() -> None:
    streams = MemoryStreams(commit_at_once=True)
    wire = Wire(streams)
    wire.take(frame(1, [0], version=9, acks=1), frame(2, [0], version=9, acks=1))
    streams.partitions[0].append_time_ms = 1_700_000_000_000
    wire.take(frame(3, [0], version=9, acks=1))
    streams.partitions[0].append_time_ms = -1
    wire.take(frame(4, [0], version=9, acks=1))

    times = [
        answer.responses[0].partition_responses[0].log_append_time_ms
        for _, answer in wire.answers(9)
    ]
    assert times == [-1, -1, 1_700_000_000_000, -1]


@pytest.mark.parametrize("version", [8, 9, 13])
def test_a_failed_write_is_answered_for_every_request_of_the_burst(version: int) -> None:
    streams = MemoryStreams(commit_at_once=False)
    wire = Wire(streams)
    wire.take(frame(1, [0], version=version, acks=1))
    streams.partitions[0].fail = Unavailable(ErrorCode.DISK_FULL, "no space")

    wire.take(frame(2, [0], version=version, acks=1), frame(3, [0], version=version, acks=1))

    assert offsets(wire.answers(version))[1:] == [(2, [(0, 56, -1)]), (3, [(0, 56, -1)])]


def test_acks_all_is_refused_where_copies_are_missing() -> None:
    streams = MemoryStreams(commit_at_once=True)
    wire = Wire(streams)
    wire.take(frame(1, [0], version=9, acks=-1))
    streams.partitions[0].short_of_replicas = True

    wire.take(frame(2, [0], version=9, acks=-1), frame(3, [0], version=9, acks=1))

    assert offsets(wire.answers(9)) == [(1, [(0, 0, 0)]), (2, [(0, 19, -1)]), (3, [(0, 0, 1)])]


def test_a_writer_that_may_have_been_replaced_takes_only_what_others_confirm() -> None:
    streams = MemoryStreams(commit_at_once=True)
    wire = Wire(streams)
    wire.take(frame(1, [0], version=9, acks=1))
    streams.partitions[0].lapsed = lambda: Unavailable(ErrorCode.NOT_WRITER, "no lease")

    wire.take(frame(2, [0], version=9, acks=1), frame(3, [0], version=9, acks=-1))

    assert offsets(wire.answers(9)) == [(1, [(0, 0, 0)]), (2, [(0, 6, -1)]), (3, [(0, 0, 1)])]


@pytest.mark.parametrize("version", [9, 13])
def test_topics_that_only_the_node_writes_are_refused(version: int) -> None:
    streams = MemoryStreams(commit_at_once=True)
    for writer in streams.partitions:
        writer.is_internal = True
    wire = Wire(streams)

    wire.take(frame(1, [0], version=version, acks=1), frame(2, [0], version=version, acks=1))

    assert offsets(wire.answers(version)) == [(1, [(0, 17, -1)]), (2, [(0, 17, -1)])]
    assert not streams.partitions[0].stored


def test_a_connection_remembers_every_partition_that_it_writes_to_up_to_a_limit() -> None:
    writer: Any = MemoryStreams(commit_at_once=True).partitions[0]
    shapes = ProduceShapes()
    first, second = (ProduceShape(writer, 9, 1, b"prefix %d" % n) for n in (0, 1))
    shapes.learn(first)
    shapes.learn(second)

    assert shapes.find(memoryview(first.prefix), 9) is shapes.last is first
    assert shapes.find(memoryview(second.prefix), 8) is None
    shapes.forget(second)
    assert shapes.find(memoryview(second.prefix), 9) is None
    for number in range(SHAPES_MAX):
        shapes.learn(ProduceShape(writer, 9, 1, b"%d" % number))
    assert shapes.find(memoryview(first.prefix), 9) is None
