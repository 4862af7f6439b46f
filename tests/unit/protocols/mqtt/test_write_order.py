"""Messages of one publisher keep their order, whatever fails and is sent again."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, cast

import pytest

from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.model.ids import Offset
from mainstem.model.message import Message
from mainstem.model.records.record import records_of
from mainstem.protocols.mqtt.hub_service import _Both
from mainstem.protocols.mqtt.streams.log_writer import LogWriter

if TYPE_CHECKING:
    from mainstem.broker.api.broker import Settled, Streams

TOPIC = "t"
TIMED_OUT = Unavailable(ErrorCode.TIMED_OUT, "it may be stored")
NOT_WRITER = Unavailable(ErrorCode.NOT_WRITER, "another node writes it")
DISK_FULL = Unavailable(ErrorCode.DISK_FULL, "no space")
TOO_LARGE = InvalidRequest(ErrorCode.RECORD_TOO_LARGE, "too large")


class FakeStream:
    """One stream, written by this node or by another one; each part fails when it is told to."""

    def __init__(self) -> None:
        self.stored: list[bytes] = []
        self.is_here = True
        self.refused: set[bytes] = set()
        self.stage_failures: list[MainstemError | None] = []
        self.append_failures: list[MainstemError | None] = []
        self.answers: asyncio.Queue[None] | None = None
        self._staged: list[list[bytes]] = []
        self._pending: list[tuple[list[bytes], Settled]] = []

    # As ``Streams``

    def partition(self, _topic: str, _partition: int) -> "FakeStream":
        if not self.is_here:
            raise NOT_WRITER
        return self

    def flush(self) -> None: ...

    async def append(self, _topic: str, _partition: int, batch: bytearray) -> Offset:
        values = values_of(batch)
        if self.answers is not None:
            await self.answers.get()
        else:
            await asyncio.sleep(0)
        failure = self.append_failures.pop(0) if self.append_failures else None
        if failure is None and self.refused.intersection(values):
            failure = TOO_LARGE
        if failure is not None:
            raise failure
        self.stored += values
        return Offset(0)

    # As the writer of a partition

    def stage(self, batch: memoryview, _start: int, _until: int) -> Offset:
        failure = self.stage_failures.pop(0) if self.stage_failures else None
        if failure is not None:
            raise failure
        self._staged.append(values_of(batch))
        return Offset(len(self._staged) - 1)

    def failure(self, _base: Offset) -> None:
        return None

    def when_written(self, base: Offset, settled: "Settled") -> bool:
        self._pending.append((self._staged[base], settled))
        return False

    # What happens to it

    def commit(self) -> None:
        pending, self._pending = self._pending, []
        for values, settled in pending:
            self.stored += values
            settled(None)

    def hand_over(self) -> None:
        """Another node writes it from now on, without what was not committed."""
        self.is_here = False
        pending, self._pending = self._pending, []
        for _, settled in pending:
            settled(NOT_WRITER)


def values_of(batch: bytearray | memoryview) -> list[bytes]:
    return [record.value or b"" for record in records_of(memoryview(batch))]


class Publisher:
    """Publishes numbers; its connection is shut by a failure, and it sends again on a new one."""

    def __init__(self, writer: LogWriter) -> None:
        self._writer = writer
        self.unconfirmed: list[int] = []
        self.is_connected = True
        self.failures: list[ErrorCode] = []
        self._connections = 0
        self._next = 0

    def publish(self, payload: bytes = b"") -> None:
        self.unconfirmed.append(self._next)
        self._send(self._next, payload)
        self._next += 1

    def reconnect(self) -> None:
        self._connections += 1
        self.is_connected = True
        for number in list(self.unconfirmed):
            self._send(number, b"")

    def _send(self, number: int, payload: bytes) -> None:
        connection = self._connections

        def settled(error: MainstemError | None) -> None:
            if connection != self._connections or not self.is_connected:
                return
            if error is None:
                self.unconfirmed.remove(number)
            else:
                self.failures.append(error.code)
                self.is_connected = False

        self._writer.add(TOPIC, Message(b"k", payload or b"%d" % number, (), 0), settled)


def make(stream: FakeStream) -> tuple[LogWriter, list[Callable[[], None]]]:
    turns: list[Callable[[], None]] = []
    streams = cast("Streams", stream)
    return LogWriter(streams, lambda _topic: 1, turns.append, lambda *_: None), turns


def end_turn(turns: list[Callable[[], None]]) -> None:
    due = turns[:]
    turns.clear()
    for each in due:
        each()


async def idle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def first_appearances(stream: FakeStream) -> list[int]:
    return list(dict.fromkeys(int(value) for value in stream.stored))


async def test_nothing_that_waits_behind_a_failed_message_is_passed_on() -> None:
    stream = FakeStream()
    stream.is_here, stream.answers = False, asyncio.Queue()
    stream.append_failures = [TIMED_OUT]
    writer, turns = make(stream)
    publisher = Publisher(writer)
    publisher.publish()
    end_turn(turns)
    await idle()
    publisher.publish()  # waits for the first one to be answered
    end_turn(turns)
    publisher.publish()  # is noted in the turn in which that fails
    for _ in range(3):
        stream.answers.put_nowait(None)
    await idle()
    end_turn(turns)
    await idle()

    assert stream.stored == []
    assert not publisher.is_connected
    publisher.reconnect()
    end_turn(turns)
    await idle()
    assert stream.stored == [b"0", b"1", b"2"]
    assert publisher.unconfirmed == []


async def test_a_failure_while_messages_are_sent_singly_ends_it() -> None:
    stream = FakeStream()
    stream.is_here = False
    stream.refused = {b"large"}
    stream.append_failures = [None, TIMED_OUT]
    writer, turns = make(stream)
    codes: list[ErrorCode | None] = []

    def settled(error: MainstemError | None) -> None:
        codes.append(None if error is None else error.code)

    for value in (b"0", b"large", b"1"):
        writer.add(TOPIC, Message(b"k", value, (), 0), settled)
    end_turn(turns)
    await idle()

    assert stream.stored == []
    assert codes == [ErrorCode.TIMED_OUT] * 3


async def test_what_nobody_sends_again_is_passed_on_after_a_failure() -> None:
    stream = FakeStream()
    stream.is_here, stream.answers = False, asyncio.Queue()
    stream.append_failures = [TIMED_OUT]
    writer, turns = make(stream)
    publisher = Publisher(writer)
    publisher.publish()
    end_turn(turns)
    await idle()
    writer.add(TOPIC, Message(b"k", b"waiting", (), 0))
    publisher.publish()
    end_turn(turns)
    writer.add(TOPIC, Message(b"k", b"noted", (), 0))
    for _ in range(3):
        stream.answers.put_nowait(None)
    await idle()
    end_turn(turns)
    await idle()
    assert stream.stored == [b"waiting", b"noted"]


async def test_what_is_noted_while_a_stream_is_handed_over_does_not_overtake() -> None:
    stream = FakeStream()
    writer, turns = make(stream)
    publisher = Publisher(writer)
    publisher.publish()
    end_turn(turns)
    publisher.publish()
    stream.hand_over()
    end_turn(turns)
    await idle()

    assert stream.stored == []
    publisher.reconnect()
    end_turn(turns)
    await idle()
    assert stream.stored == [b"0", b"1"]


async def test_pieces_after_one_that_was_not_staged_are_not_written() -> None:
    stream = FakeStream()
    stream.stage_failures = [None, DISK_FULL, None, None]
    writer, turns = make(stream)
    publisher = Publisher(writer)
    for _ in range(3_000):  # three pieces
        publisher.publish()
    end_turn(turns)
    stream.commit()
    assert first_appearances(stream) == list(range(1_000))

    stream.stage_failures.clear()
    publisher.reconnect()
    end_turn(turns)
    stream.commit()
    assert first_appearances(stream) == list(range(3_000))


async def test_a_small_message_does_not_overtake_one_that_is_too_much() -> None:
    stream = FakeStream()
    stream.is_here, stream.answers = False, asyncio.Queue()
    writer, turns = make(stream)
    publisher = Publisher(writer)
    publisher.publish(bytes(40 * 1024 * 1024))
    publisher.publish(bytes(40 * 1024 * 1024))
    publisher.publish()
    end_turn(turns)
    for _ in range(3):
        stream.answers.put_nowait(None)
    await idle()
    assert publisher.failures == [ErrorCode.OVERLOADED]
    assert len(stream.stored) == 1


def test_a_failure_of_a_retained_message_is_known_before_its_other_part_is_stored() -> None:
    codes: list[MainstemError | None] = []
    both = _Both(codes.append)
    both.one(TIMED_OUT)
    assert codes == [TIMED_OUT]
    both.one(None)
    assert codes == [TIMED_OUT]


def use(publisher: Publisher, turns: list[Callable[[], None]], chance: Random) -> None:
    if chance.random() < 0.3:
        end_turn(turns)
    elif publisher.is_connected:
        publisher.publish()
    else:
        publisher.reconnect()


async def disturb(stream: FakeStream, writer: LogWriter, chance: Random) -> None:
    act = chance.randrange(3)
    if act == 0:
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)
    elif act == 1:
        stream.append_failures = [chance.choice((None, TIMED_OUT, DISK_FULL))]
        stream.stage_failures = [chance.choice((None, DISK_FULL))]
    elif stream.is_here:
        chance.choice((stream.commit, stream.hand_over))()
    else:
        await idle()
        stream.is_here = not writer._far.has(TOPIC, 0)


@pytest.mark.parametrize("seed", range(200))
async def test_first_appearances_keep_their_order_whatever_fails(seed: int) -> None:
    chance = Random(seed)
    stream = FakeStream()
    writer, turns = make(stream)
    publisher = Publisher(writer)
    for _ in range(60):
        if chance.random() < 0.5:
            use(publisher, turns, chance)
        else:
            await disturb(stream, writer, chance)
    stream.append_failures, stream.stage_failures = [], []
    for _ in range(5):
        end_turn(turns)
        await idle()
        stream.commit()
        if not publisher.is_connected:
            publisher.reconnect()

    assert publisher.unconfirmed == []
    assert first_appearances(stream) == sorted(first_appearances(stream))
