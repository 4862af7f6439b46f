"""Coordinators of groups and transactions over streams in memory, on virtual time."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from tests.kit.simulation.coordination.memory_stream import MemoryStream
from tests.kit.simulation.coordination.topic_list import TopicList

from mainstem.coordination.groups.requests import CommitRequest, OffsetToCommit
from mainstem.coordination.groups.service import GroupCoordinator
from mainstem.coordination.groups.settings import GroupSettings
from mainstem.coordination.shards.partitioning import OFFSETS_TOPIC
from mainstem.coordination.shards.registry_driver import InternalTopic
from mainstem.coordination.transactions.markers_driver import Markers
from mainstem.coordination.transactions.requests import EndRequest, InitRequest
from mainstem.coordination.transactions.service import TransactionCoordinator
from mainstem.coordination.transactions.settings import TransactionSettings
from mainstem.coordination.transactions.state import ProducerIdentity
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.records.batch import read_header
from mainstem.model.topic_name import TRANSACTION_STATE_TOPIC
from mainstem.streams.producers.transaction_markers import marker_of
from mainstem.testing.simulation.cluster.clock import SimClock

T = "t"
A = ("data", 0)
PARTITIONS = 2
TIMEOUT_MS = 60_000


class TransactionNode:
    """What a node keeps while its coordinators are started and stopped."""

    def __init__(self) -> None:
        self.topics = {"data": 2}
        self.state = [MemoryStream() for _ in range(PARTITIONS)]
        self.offsets = [MemoryStream() for _ in range(PARTITIONS)]
        self.data = {("data", 0): MemoryStream(), ("data", 1): MemoryStream()}
        self.producer_ids = iter(range(100, 1_000))
        self.transactions: TransactionCoordinator
        self.groups: GroupCoordinator

    async def start(self) -> None:
        self.groups = GroupCoordinator(
            GroupSettings(offsets_partitions=PARTITIONS),
            self._internal(OFFSETS_TOPIC, self.offsets),
            TopicList(),
            SimClock(),
        )
        self.transactions = TransactionCoordinator(
            TransactionSettings(state_partitions=PARTITIONS),
            self._internal(TRANSACTION_STATE_TOPIC, self.state),
            SimClock(),
            new_producer_id=self._new_producer_id,
            markers=Markers(self._open, self.groups.transactional_offsets),
            group_offsets=self.groups.transactional_offsets,
        )
        self.groups.start()
        self.transactions.start()
        for _ in range(1_000):
            if self.groups.is_loaded() and self.transactions.is_loaded():
                return
            await asyncio.sleep(0)
        raise AssertionError("the shards do not load")

    async def restart(self) -> None:
        self.stop()
        await asyncio.sleep(0)
        await self.start()

    def stop(self) -> None:
        self.transactions.stop()
        self.groups.stop()

    async def init(self, **rest: Any) -> ProducerIdentity:
        request = InitRequest(transactional_id=T, timeout_ms=TIMEOUT_MS, **rest)
        return (await self.transactions.init(request)).producer

    async def add(self, producer: ProducerIdentity, *partitions: tuple[str, int]) -> None:
        await self.transactions.add_partitions(T, *producer, partitions, verify_only=False)

    async def end(self, producer: ProducerIdentity, *, commit: bool = True) -> ProducerIdentity:
        return await self.transactions.end(
            EndRequest(transactional_id=T, producer=producer, commit=commit)
        )

    async def commit_offset(self, producer: ProducerIdentity, offset: int) -> None:
        [outcome] = await self.transactions.commit_offsets(
            T,
            producer,
            CommitRequest(group_id="g", offsets=(OffsetToCommit("data", 0, offset),)),
            verify_only=False,
        )
        assert outcome is None

    async def offset(self, *, stable: bool = False) -> int | ErrorCode:
        [found] = await self.groups.fetch_offsets("g", [("data", 0)], stable=stable)
        return found.outcome or found.committed.offset

    def markers(self, place: tuple[str, int] = A) -> list[tuple[int, int, bool]]:
        return list(_markers(self.data[place]))

    @property
    def stream(self) -> MemoryStream:
        """The stream that keeps the transactional id."""
        return self.state[self.transactions.coordinator_partition(T)]

    def state_of(self) -> str:
        return self.transactions.describe(T).state

    def _internal(self, name: str, streams: list[MemoryStream]) -> InternalTopic:
        async def ensure() -> None:
            self.topics[name] = PARTITIONS

        return InternalTopic(ensure, lambda p: streams[p], lambda topic: self.topics.get(topic, 0))

    def _open(self, topic: str, partition: int) -> MemoryStream:
        if (topic, partition) not in self.data:
            raise InvalidRequest(ErrorCode.UNKNOWN_TOPIC, subject=topic)
        return self.data[topic, partition]

    async def _new_producer_id(self) -> tuple[int, int]:
        await asyncio.sleep(0)
        return next(self.producer_ids), 0


@asynccontextmanager
async def started_node() -> AsyncIterator[TransactionNode]:
    """A node whose coordinators have loaded."""
    node = TransactionNode()
    await node.start()
    try:
        yield node
    finally:
        node.stop()


def _markers(stream: MemoryStream) -> Iterator[tuple[int, int, bool]]:
    for batch in stream.batches:
        header = read_header(batch)
        if header.is_control:
            yield header.producer_id, header.producer_epoch, marker_of(batch).commit
