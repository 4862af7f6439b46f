"""A counter that lives in memory, with the routes on top of it."""

import asyncio
import itertools
import os
from collections.abc import (
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from typing import TYPE_CHECKING, Any, cast

import httpx
from msgspec.structs import replace
from tests.kit.clock import ManualClock

from mainstem.broker.api.configs import ConfigChange
from mainstem.broker.api.groups import (
    CommittedOffset,
    DescribedConsumerGroup,
    DescribedGroup,
    DescribedMember,
    FetchedOffset,
    ListedGroup,
)
from mainstem.broker.api.queues import QueueCounts
from mainstem.broker.api.share_groups import DescribedShareGroup, ShareOffset
from mainstem.broker.services.all_groups_service import LocalGroups
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.model.ids import Epoch, NodeId, Offset, PartitionIndex, RangeIndex, StreamId, TopicId
from mainstem.model.metadata import Node, Range, Stream, Topic
from mainstem.model.records.batch import check_produced, read_header, stamp
from mainstem.model.topic_name import check_topic_name
from mainstem.protocols.rest.app import RestApp
from mainstem.protocols.rest.handler_context import HandlerContext, NodeDescription, Telemetry
from mainstem.protocols.rest.metrics_sampling import MetricsSampler
from mainstem.streams.reading.local_reader_driver import LocalReader
from mainstem.telemetry.health import Component, Health, HealthState, summarize
from mainstem.telemetry.metrics import Metrics

if TYPE_CHECKING:
    import asyncio

NOW_MS = 1_700_000_000_000
PARTITIONS_MAX = 100


class MemorySlice:
    """Batches in a file that the test keeps."""

    def __init__(self, fd: int, data: bytes, until_offset: int) -> None:
        self.fd, self.position, self._data = fd, 0, data
        self.start_offset = read_header(data).base_offset
        self.until_offset = until_offset

    def read(self) -> bytes:
        return self._data

    def __len__(self) -> int:
        return len(self._data)


class MemoryStream:
    """One stream: a list of batches. ``refusal`` makes appends fail, ``held`` makes them wait."""

    def __init__(self, topic: str, partition: int) -> None:
        self.id = StreamId(TopicId(bytes(16)), PartitionIndex(partition))
        self.topic = topic
        self.epoch = 0
        self.start_offset = self.committed = self.last_stable = self.next_offset = 0
        self.batches: list[bytes] = []
        self.aborted: list[tuple[int, int]] = []
        self.refusal: MainstemError | None = None
        self.held: asyncio.Event | None = None
        self.lapsed = self.closed = None
        self.waiters: dict[Callable[[], None], None] = {}
        self._fd = os.memfd_create(f"{topic}-{partition}")

    async def append(self, batch: bytearray) -> Offset:
        if self.refusal is not None:
            raise self.refusal
        header = check_produced(memoryview(batch), 0, len(batch))
        base = self.next_offset
        stamp(batch, 0, base, self.epoch)
        self.next_offset = base + header.record_count
        self.batches.append(bytes(batch))
        if self.held is not None:
            await self.held.wait()
        self.committed = self.last_stable = self.next_offset
        for wake in list(self.waiters):
            wake()
        return Offset(base)

    def add_waiter(self, wake: Callable[[], None]) -> None:
        self.waiters[wake] = None

    def remove_waiter(self, wake: Callable[[], None]) -> None:
        self.waiters.pop(wake)

    def read(
        self, offset: int, *, max_bytes: int, committed_only: bool, min_one: bool
    ) -> MemorySlice | None:
        found: list[bytes] = []
        until = self.last_stable if committed_only else self.committed
        for batch in self.batches:
            header = read_header(batch)
            if header.until_offset <= offset or header.base_offset >= until:
                continue
            if found and sum(map(len, found)) + len(batch) > max_bytes:
                break
            found.append(batch)
        if not found:
            return None
        data = b"".join(found)
        os.pwrite(self._fd, data, 0)
        return MemorySlice(self._fd, data, until)

    def close(self) -> None:
        os.close(self._fd)

    def aborted_transactions(self, start: int, until: int) -> list[tuple[int, int]]:
        return self.aborted

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int, int] | None:
        for batch in self.batches:
            header = read_header(batch)
            if header.max_timestamp >= timestamp:
                return header.base_offset, header.base_timestamp, 0
        return None


class NoQueues:
    """A node where nobody declared a queue."""

    def __init__(self) -> None:
        self.admin = self

    def namespaces(self) -> list[str]:
        return []

    def counts(self) -> QueueCounts:
        return QueueCounts()


class MemoryCounter:
    """Streams, topics and groups of one node; plays every part of the counter."""

    def __init__(self) -> None:
        self.node = Node(NodeId(7), "127.0.0.1", 9092)
        self.streams = self.topics = self.configs = self.groups = self
        self.queues = NoQueues()
        self.shared: dict[str, tuple[DescribedShareGroup, list[ShareOffset]]] = {}
        shares = cast("Any", MemoryShares(self.shared))
        self.all_groups = LocalGroups(cast("Any", self), shares, lambda _: 45_000)
        self.auto_create = True
        self.listed: list[ListedGroup] = []
        self.described: dict[str, DescribedGroup] = {}
        self.positions: dict[str, list[FetchedOffset]] = {}
        self.altered: list[tuple[str, Sequence[ConfigChange]]] = []
        self._topics: dict[str, Topic] = {}
        self._streams: dict[tuple[str, int], MemoryStream] = {}
        self.sizes_asked: list[str | None] = []
        self._ids = itertools.count(1)

    def close(self) -> None:
        for stream in self._streams.values():
            stream.close()

    # streams

    def partition(self, topic: str, partition: int) -> MemoryStream:
        try:
            return self._streams[topic, partition]
        except KeyError:
            raise InvalidRequest(ErrorCode.UNKNOWN_TOPIC, subject=topic) from None

    async def open_reader(
        self, topic: str, partition: int, until: int | None = None
    ) -> LocalReader:
        return LocalReader(self.partition(topic, partition))

    async def append(self, topic: str, partition: int, batch: bytearray) -> Offset:
        return await self.partition(topic, partition).append(batch)

    def sizes(self, topic: str | None = None) -> list[tuple[str, int, int]]:
        self.sizes_asked.append(topic)
        return [
            (name, partition, sum(map(len, stream.batches)))
            for (name, partition), stream in self._streams.items()
            if topic in (None, name)
        ]

    # topics

    def by_name(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def all(self) -> Iterable[Topic]:
        return self._topics.values()

    def cluster_id(self) -> str:
        return "cluster"

    async def create(
        self,
        name: str,
        *,
        partitions: int,
        replication_factor: int,
        configs: Mapping[str, str | None],
        internal: bool = False,
    ) -> Topic:
        check_topic_name(name)
        if name in self._topics:
            raise InvalidRequest(ErrorCode.TOPIC_EXISTS, subject=name)
        _check_configs(configs)
        topic_id = TopicId(next(self._ids).to_bytes(16, "big"))
        topic = Topic(
            topic_id,
            name,
            NOW_MS,
            (),
            {key: value for key, value in configs.items() if value is not None},
            internal,
        )
        return self._grown(topic, 1 if partitions < 0 else partitions)

    async def ensure(self, name: str) -> Topic:
        if not self.auto_create:
            raise InvalidRequest(ErrorCode.UNKNOWN_TOPIC, subject=name)
        return await self.create(name, partitions=-1, replication_factor=-1, configs={})

    async def delete_topic(self, name: str) -> None:
        for key in [key for key in self._streams if key[0] == name]:
            self._streams.pop(key).close()
        del self._topics[name]

    async def add_partitions(self, name: str, *, total: int, validate_only: bool = False) -> None:
        if total > PARTITIONS_MAX:
            raise InvalidRequest(ErrorCode.INVALID_PARTITIONS, f"{total} are too many")
        if not validate_only:
            self._grown(self._topics[name], total)

    async def alter_topic(
        self, name: str, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> None:
        _check_configs({change.name: change.value for change in changes})
        if not validate_only:
            self.altered.append((name, changes))

    def _grown(self, topic: Topic, count: int) -> Topic:
        streams = list(topic.streams)
        for partition in range(len(streams), count):
            stream = StreamId(topic.id, PartitionIndex(partition))
            first = Range(RangeIndex(0), Offset(0), Epoch(0), (NodeId(7),))
            streams.append(Stream(stream, Epoch(0), NodeId(7), Offset(0), (first,)))
            self._streams[topic.name, partition] = MemoryStream(topic.name, partition)
        grown = Topic(
            topic.id, topic.name, topic.created_ms, tuple(streams), topic.configs, topic.internal
        )
        self._topics[topic.name] = grown
        return grown

    # groups; a name that is no group is a topic

    @property
    def consumers(self) -> "NoConsumerGroups":
        return NoConsumerGroups()

    def list(self) -> Sequence[ListedGroup]:
        return self.listed

    def describe(self, group_id: str) -> DescribedGroup:
        try:
            return self.described[group_id]
        except KeyError:
            raise InvalidRequest(ErrorCode.UNKNOWN_GROUP, subject=group_id) from None

    async def fetch_offsets(
        self, group_id: str, partitions: Sequence[tuple[str, int]] | None
    ) -> Sequence[FetchedOffset]:
        return self.positions.get(group_id, ())

    async def delete(self, name: str) -> None:
        if name in self._topics:
            await self.delete_topic(name)
            return
        group = self.describe(name)
        if group.members:
            raise InvalidRequest(ErrorCode.GROUP_NOT_EMPTY, subject=name)
        del self.described[name]

    def add_group(self, group_id: str, topic: str, committed: int, *, members: int = 1) -> None:
        state = "Stable" if members else "Empty"
        self.listed.append(ListedGroup(group_id, state, "consumer", 3, members))
        self.described[group_id] = DescribedGroup(
            group_id,
            state,
            "consumer",
            "range",
            3,
            "m-0" if members else "",
            tuple(
                DescribedMember(f"m-{i}", None, "app", "/127.0.0.1", 45_000, 300_000, b"", b"")
                for i in range(members)
            ),
        )
        self.positions[group_id] = [FetchedOffset(topic, 0, CommittedOffset(committed))]


class MemoryShares:
    """Share groups by their names, and where they stand."""

    def __init__(self, groups: dict[str, tuple[DescribedShareGroup, list[ShareOffset]]]) -> None:
        self._groups = groups

    def describe(self, group_id: str) -> DescribedShareGroup:
        if group_id not in self._groups:
            raise InvalidRequest(ErrorCode.UNKNOWN_GROUP, "no share group", subject=group_id)
        return self._groups[group_id][0]

    async def offsets(self, group_id: str, topics: None) -> list[ShareOffset]:
        return self._groups[group_id][1]


class NoConsumerGroups:
    def describe(self, group_id: str) -> DescribedConsumerGroup:
        raise InvalidRequest(ErrorCode.UNKNOWN_GROUP, subject=group_id)


def _check_configs(configs: Mapping[str, str | None]) -> None:
    for name in configs:
        if name != "retention.ms":
            raise InvalidRequest(ErrorCode.INVALID_CONFIG, f"unknown config {name}", subject=name)


class Rest:
    """The application, a client for it, and the counter behind it."""

    def __init__(self) -> None:
        self.counter = MemoryCounter()
        self.clock = ManualClock(NOW_MS / 1000)
        self.metrics = Metrics()
        self.component = Component("log", HealthState.OK)
        self.site = HandlerContext(
            broker=self.counter,  # type: ignore[arg-type] # the parts that the routes ask for
            clock=self.clock,
            telemetry=Telemetry(
                metrics=self.metrics,
                figures=MetricsSampler(self.counter, self.clock),  # type: ignore[arg-type]
                health=self._health,
            ),
            facts=_facts,
            body_bytes_max=20_000,
        )
        self.http = self.client()

    def client(self, **changes: object) -> httpx.AsyncClient:
        """A client of the application, or of one that differs a little."""
        self.app = RestApp(replace(self.site, **changes))
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://node")

    def _health(self) -> Health:
        return summarize([self.component])

    async def topic(self, name: str, partitions: int = 1, *, internal: bool = False) -> Topic:
        return await self.counter.create(
            name, partitions=partitions, replication_factor=1, configs={}, internal=internal
        )

    async def post(self, topic: str, body: object, **query: str | int) -> httpx.Response:
        return await self.http.post(f"/v1/topics/{topic}/messages", json=body, params=query)

    async def peek(self, topic: str, **query: str | int) -> httpx.Response:
        return await self.http.get(f"/v1/topics/{topic}/messages", params=query)


def _facts() -> NodeDescription:
    return NodeDescription(
        version="0.1.0",
        data_dir="/data",
        platform="Linux",
        kafka_host="127.0.0.1",
        kafka_port=9092,
        http_host="127.0.0.1",
        http_port=8080,
        storage_threads=4,
        segment_bytes=1 << 30,
    )
