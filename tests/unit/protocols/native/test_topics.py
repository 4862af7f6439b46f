"""Topics over the native protocol are the same at every node, whichever writes them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from tests.kit.clock import ManualClock
from tests.unit.protocols.rest.counter import MemoryCounter, MemoryStream

from mainstem.model.errors import ErrorCode, InvalidRequest, Unavailable
from mainstem.model.ids import Offset
from mainstem.protocols.native import topics_service
from mainstem.protocols.native.topics_service import WRITER_CHANGES_MAX, NativeTopics
from mainstem.streams.reading.local_reader_driver import LocalReader, StreamPiece
from mainstem.telemetry.metrics import Metrics
from mainstem.wire.native import answers, requests
from mainstem.wire.native.words import WireMessage

NOT_HERE = Unavailable(ErrorCode.NOT_WRITER, "another node writes it")


class _AllowedToAll:
    def topic(self, *_: object) -> None: ...


class _Link:
    """A client that may do everything, as fast as it likes."""

    permissions = _AllowedToAll()

    def charge(self, *_: object) -> int:
        return 0


class _Look(LocalReader):
    """A look that the writer breaks off as often as it is told to."""

    def __init__(self, writer: MemoryStream, node: "Elsewhere") -> None:
        super().__init__(writer)
        self._node = node

    async def next_piece(self, offset: int, max_bytes: int, wait_ms: int) -> StreamPiece | None:
        if self._node.moves:
            self._node.moves -= 1
            raise NOT_HERE
        return await super().next_piece(offset, max_bytes, wait_ms)


class Elsewhere(MemoryCounter):
    """A node that writes nothing; looks and appends are passed on to where it is written."""

    def __init__(self) -> None:
        super().__init__()
        self.moves = 0
        self.appended = 0

    def partition(self, topic: str, partition: int) -> MemoryStream:
        super().partition(topic, partition)
        raise NOT_HERE

    async def open_reader(
        self, topic: str, partition: int, until: int | None = None
    ) -> LocalReader:
        return _Look(super().partition(topic, partition), self)

    async def append(self, topic: str, partition: int, batch: bytearray) -> Offset:
        self.appended += 1
        return await super().partition(topic, partition).append(batch)


class TopicsClient:
    """A client at such a node."""

    def __init__(self) -> None:
        self.node = Elsewhere()
        service = cast("Any", self)
        self.broker, self.clock, self.metrics = self.node, ManualClock(), Metrics()
        self._topics = NativeTopics(cast("Any", _Link()), service)

    async def append(
        self, *values: bytes, durability: Any = "committed"
    ) -> list[answers.RecordPosition]:
        messages = [WireMessage(value=value) for value in values]
        word = requests.Append(topic="t", messages=messages, durability=durability)
        return (await self._topics.append(word)).places

    async def read(self, **asked: Any) -> answers.Records:
        return await self._topics.read(requests.Read(topic="t", **asked))


@pytest.fixture
async def client() -> AsyncIterator[TopicsClient]:
    client = TopicsClient()
    await client.node.create("t", partitions=1, replication_factor=1, configs={})
    yield client
    client.node.close()


def values(found: answers.Records) -> list[bytes | None]:
    return [record.message.value for record in found.records]


async def test_a_topic_is_read_at_a_node_that_does_not_write_it(client: TopicsClient) -> None:
    await client.append(b"0", b"1", b"2")
    found = await client.read(limit=2)
    assert values(found) == [b"0", b"1"]
    assert (found.next_offset, found.start_offset, found.end_offset) == (2, 0, 3)
    assert values(await client.read(offset=-1)) == []
    with pytest.raises(InvalidRequest) as caught:
        await client.read(offset=4)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_read_waits_for_what_another_node_is_to_write(client: TopicsClient) -> None:
    reading = asyncio.create_task(client.read(wait_ms=10_000))
    await asyncio.sleep(0.05)
    assert not reading.done()
    await client.append(b"late")
    assert values(await reading) == [b"late"]
    began = asyncio.get_running_loop().time()
    assert values(await client.read(offset=1, wait_ms=100)) == []
    assert asyncio.get_running_loop().time() - began >= 0.09


async def test_a_read_follows_its_partition_to_the_next_writer_but_not_for_ever(
    client: TopicsClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics_service, "PAUSE_S", 0.001)

    await client.append(b"0")
    client.node.moves = WRITER_CHANGES_MAX
    assert values(await client.read()) == [b"0"]
    client.node.moves = WRITER_CHANGES_MAX + 1
    with pytest.raises(Unavailable):
        await client.read()


async def test_what_need_only_be_written_is_committed_where_another_node_writes_it(
    client: TopicsClient,
) -> None:
    [place] = await client.append(b"0", durability="written")
    assert (place.partition, place.offset, client.node.appended) == (0, 0, 1)
