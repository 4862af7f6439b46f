"""Streams that other nodes write: read ahead, passed on in order, told once."""

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.model.ids import PartitionIndex, StreamId, TopicId
from mainstem.model.message import Message
from mainstem.model.records.record import records_of
from mainstem.protocols.mqtt.streams.remote_stream_driver import RemoteStream
from mainstem.protocols.mqtt.streams.remote_writer_driver import RemoteStreamWriter

if TYPE_CHECKING:
    from mainstem.broker.api.broker import Streams

STREAM = StreamId(TopicId(b"t" * 16), PartitionIndex(0))


class Writer:
    """The node that writes: so many offsets, each a piece of its own."""

    def __init__(self, end: int) -> None:
        self.end = end
        self.failures = 0
        self.more = asyncio.Event()

    async def follow(
        self, _topic: str, _partition: int, offset: int, _max_bytes: int, wait_ms: int
    ) -> Any:
        if self.failures:
            self.failures -= 1
            raise Unavailable(ErrorCode.NOT_WRITER, "not now")
        if wait_ms and offset >= self.end:
            await self.more.wait()
            self.more.clear()
        piece = None
        if offset < self.end:
            piece = SimpleNamespace(data=b"%d" % offset, until_offset=offset + 1, aborted=[])
        return SimpleNamespace(start_offset=0, last_stable=self.end), piece

    def write(self) -> None:
        self.end += 1
        self.more.set()


def read(stream: RemoteStream, offset: int) -> bytes | None:
    found = stream.read(offset, max_bytes=1, committed_only=True, min_one=True)
    return None if found is None else found.read()


async def woken(stream: RemoteStream) -> None:
    event = asyncio.Event()
    stream.add_waiter(event.set)
    await asyncio.wait_for(event.wait(), 5)
    stream.remove_waiter(event.set)


async def test_what_is_not_here_yet_is_there_a_little_later() -> None:
    writer = Writer(end=3)
    writer.failures = 2
    stream = RemoteStream(STREAM, "t", writer.follow)
    await asyncio.wait_for(stream.opened.wait(), 5)

    assert stream.last_stable == 3
    assert read(stream, 1) is None
    await woken(stream)
    assert read(stream, 1) == b"1"
    writer.write()
    await woken(stream)
    assert (stream.last_stable, read(stream, 3)) == (4, b"3")
    assert read(stream, 4) is None
    stream.close()
    assert stream.closed is not None


class Log:
    """Takes batches, one at a time, or refuses some."""

    def __init__(self) -> None:
        self.stored: list[bytes] = []
        self.at_once = 0
        self.refused = b""
        self.fails = False

    async def append(self, _topic: str, _partition: int, batch: bytearray) -> int:
        self.at_once += 1
        assert self.at_once == 1, "order needs one at a time"
        await asyncio.sleep(0)
        self.at_once -= 1
        values = [record.value or b"" for record in records_of(memoryview(batch))]
        if self.fails:
            raise Unavailable(ErrorCode.TIMED_OUT, "it may be stored")
        if self.refused in values:
            raise InvalidRequest(ErrorCode.RECORD_TOO_LARGE, "too large")
        self.stored += values
        return 0


async def passed_on(log: Log, values: list[bytes]) -> list[ErrorCode | None]:
    writer = RemoteStreamWriter(cast("Streams", log), lambda _topic, _partition: [])
    told: list[ErrorCode | None] = []

    def settled(error: MainstemError | None) -> None:
        told.append(None if error is None else error.code)

    for value in values:
        writer.put("t", 0, [(Message(b"k", value, (), 0), settled)])
    for _ in range(10_000):
        if not writer.has("t", 0):
            break
        await asyncio.sleep(0)
    return told


async def test_messages_are_passed_on_in_order_and_told_once() -> None:
    log = Log()
    values = [b"%d" % number for number in range(2_500)]

    told = await passed_on(log, values)

    assert log.stored == values
    assert told == [None] * 2_500


async def test_one_that_cannot_be_stored_does_not_take_the_others_with_it() -> None:
    log = Log()
    log.refused = b"2"

    told = await passed_on(log, [b"1", b"2", b"3"])

    assert log.stored == [b"1", b"3"]
    assert told == [None, ErrorCode.RECORD_TOO_LARGE, None]


@pytest.mark.parametrize("count", [1, 3])
async def test_nothing_is_sent_again_where_nobody_knows_whether_it_is_stored(count: int) -> None:
    log = Log()
    log.fails = True

    told = await passed_on(log, [b"x"] * count)

    assert told == [ErrorCode.TIMED_OUT] * count
