"""Three nodes with real files in one process: one catalogue for all, a network that can be cut."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self, TypeVar

from mainstem.log.disk.group_commit import GroupCommit
from mainstem.log.store import LogStore, StoreSettings
from mainstem.model.config.topic import topic_settings
from mainstem.model.errors import MainstemError
from mainstem.model.features import OWN_LEVELS
from mainstem.model.ids import NodeId, PartitionIndex, StreamId, TopicId
from mainstem.model.metadata import Node, Stream, Topic
from mainstem.model.records.record import (
    NO_PRODUCER,
    ProducerStamp,
    Record,
    build_batch,
    records_of,
)
from mainstem.placement.changes.commands import CreateTopic, RegisterNode
from mainstem.placement.changes.replication_commands import FenceNode, UnfenceNode
from mainstem.placement.startup_service import Placement, StartupOptions, open_placement
from mainstem.streams.context import NodeContext
from mainstem.streams.service import StreamService
from mainstem.streams.writer.flusher import Flusher
from mainstem.streams.writer.roll_driver import RollDriver
from mainstem.telemetry.metrics import Metrics
from mainstem.testing.simulation.peer_network import PeerNetwork
from mainstem.testing.simulation.raft.group import LoopClock

TOPIC_ID = TopicId(b"replicated topic")
STREAM = StreamId(TOPIC_ID, PartitionIndex(0))
ResultT = TypeVar("ResultT")


class StreamClusterNode:
    """Log and streams of one node."""

    def __init__(self, cluster: "StreamCluster", number: int) -> None:
        self.cluster = cluster
        self.id = NodeId(number)
        self.folder = cluster.folder / f"node-{number}"
        self.incarnation = 0
        self.boot = "first boot"
        self.fatal: list[BaseException] = []
        self.is_up = False
        self.store: LogStore
        self.commits: GroupCommit
        self.rolls: RollDriver
        self.streams: StreamService
        self._unsubscribe: list[Callable[[], None]] = []

    async def start(self) -> None:
        cluster = self.cluster
        self.incarnation += 1
        self.is_up = True
        self.store = LogStore(self.folder, StoreSettings(boot_id=self.boot), cluster.clock)
        service = cluster.placement.service
        await service.submit(
            RegisterNode(
                Node(self.id, "127.0.0.1", 9092 + self.id, rack=f"rack-{self.id}"),
                cluster.placement.incarnation + self.incarnation,
                self.store.directory_id.hex(),
                OWN_LEVELS,
            )
        )
        self.commits = GroupCommit(
            asyncio.get_running_loop(), self.fatal.append, self.store.files.access
        )
        self.rolls = RollDriver(service, self.store, self.commits, self.fatal.append)
        flusher = Flusher(
            Metrics(), sync=self.commits.request, roll=self.rolls.roll, fatal=self.fatal.append
        )
        self.streams = StreamService(
            NodeContext(
                service,
                self.store,
                flusher,
                cluster.clock,
                lambda topic: topic_settings(topic.configs),
                self.id,
            ),
            peers=cluster.network.join(self.id),
        )
        before = len(service.replay.listeners)
        await self.streams.lifecycle.start(cluster.placement.incarnation + self.incarnation)
        self._listeners = service.replay.listeners[before:]

    async def crash(self) -> None:
        """Leave everything as it is, as a killed process does; only its locks are gone."""
        self.is_up = False
        self.cluster.network.leave(self.id)
        for listener in self._listeners:
            self.cluster.placement.service.replay.listeners.remove(listener)
        self.streams.lifecycle.close()
        await asyncio.sleep(0)
        self.commits.close()
        os.close(self.store._lock)

    async def stop(self) -> None:
        await self.rolls.settled()
        await self.commits.drain()
        self.streams.lifecycle.save_producers()
        for listener in self._listeners:
            self.cluster.placement.service.replay.listeners.remove(listener)
        self.streams.lifecycle.close()
        await asyncio.sleep(0)
        self.commits.close()
        self.store.close()
        self.is_up = False
        assert self.fatal == []


class StreamCluster:
    """See the module's text."""

    def __init__(self, folder: Path, count: int = 3) -> None:
        self.folder = folder
        self.clock = LoopClock()
        self.network = PeerNetwork(delay_s=0.001)
        self.placement: Placement
        self.nodes = {
            NodeId(number): StreamClusterNode(self, number) for number in range(1, count + 1)
        }

    async def __aenter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        start = StartupOptions(
            data=self.folder,
            node=Node(NodeId(1), "127.0.0.1", 9093),
            cluster_id=None,
            directory="",
            scan=list,
        )
        self.placement = await open_placement(start, self.clock, self._failed)
        for node in self.nodes.values():
            await node.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self.nodes.values():
            if node.is_up:
                await node.stop()
        await self.placement.close()

    def _failed(self, error: BaseException) -> None:
        raise error

    async def create(self, **configs: str) -> Topic:
        """The topic ``t`` with one partition."""
        named = {name.replace("_", "."): value for name, value in configs.items()}
        command = CreateTopic(TOPIC_ID, "t", 1, len(self.nodes), named)
        return await self.placement.service.submit(command)

    @property
    def stream(self) -> Stream:
        """What the catalogue says."""
        return self.placement.service.catalogue.need_stream(STREAM)

    @property
    def writer(self) -> StreamClusterNode:
        """The node that writes the stream."""
        return self.nodes[self.stream.writer]

    async def fence(self, node: StreamClusterNode) -> None:
        """The lease of a node has ended."""
        incarnation = self.placement.incarnation + node.incarnation
        await self.placement.service.submit(FenceNode(node.id, incarnation, "no lease"))

    async def unfence(self, node: StreamClusterNode) -> None:
        """A node has its lease again."""
        incarnation = self.placement.incarnation + node.incarnation
        await self.placement.service.submit(UnfenceNode(node.id, incarnation))

    async def write(self, *values: bytes, stamp: ProducerStamp | None = None) -> int:
        """Append one batch, wherever the writer is; its base offset."""
        records = [Record(0, self.clock.wall_ms(), b"k", value) for value in values]

        async def append() -> int:
            batch = build_batch(records, producer=stamp or NO_PRODUCER)
            return await self.writer.streams.append("t", 0, batch)

        return await patiently(append)

    def values(self, node: StreamClusterNode | None = None) -> list[bytes | None]:
        """Every committed value, read from the writer."""
        stream = (node or self.writer).streams.partition("t", 0)
        offset, found = stream.start_offset, list[bytes | None]()
        while True:
            part = stream.read(offset, max_bytes=10**6, committed_only=False, min_one=True)
            if part is None:
                return found
            found += values_in(part.read())
            offset = part.until_offset

    def stored(self, node: StreamClusterNode, index: int) -> list[bytes | None]:
        """What the files of a node hold of a range, committed or not."""
        for log in node.store.logs.values():
            if log.identity.name.index == index and log.segments:
                found = list[bytes | None]()
                at = log.start_offset
                while at < log.written_end:
                    part = log.read(at, max_bytes=10**6, until=log.written_end, min_one=True)
                    assert part is not None
                    found += values_in(part.read())
                    at = part.until_offset
                return found
        return []


def batch_of(value: bytes, stamp: ProducerStamp = NO_PRODUCER) -> bytearray:
    """A batch of one record."""
    return build_batch([Record(0, 1, b"k", value)], producer=stamp)


def values_in(data: bytes) -> list[bytes | None]:
    """The values of stored batches."""
    view, found = memoryview(data), list[bytes | None]()
    while view:
        size = 12 + int.from_bytes(view[8:12], "big")
        found += [record.value for record in records_of(view[:size])]
        view = view[size:]
    return found


async def patiently(act: Callable[[], Awaitable[ResultT]], timeout_s: float = 10.0) -> ResultT:
    """Try again while the answer is that a retry helps."""
    async with asyncio.timeout(timeout_s):
        while True:
            try:
                return await act()
            except MainstemError as error:
                if not error.retriable:
                    raise
            except KeyError:
                pass  # nobody writes the stream
            await asyncio.sleep(0.02)
