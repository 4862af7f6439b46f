"""The coordinator of groups of one node, on virtual time, over streams in memory."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from tests.kit.simulation.coordination.memory_stream import MemoryStream
from tests.kit.simulation.coordination.topic_list import TopicList

from mainstem.coordination.groups.service import GroupCoordinator
from mainstem.coordination.groups.settings import GroupSettings
from mainstem.coordination.shards.partitioning import OFFSETS_TOPIC
from mainstem.coordination.shards.registry_driver import InternalTopic
from mainstem.coordination.share.settings import ShareSettings
from mainstem.testing.simulation.cluster.clock import SimClock


class GroupNode:
    """What a node keeps while its coordinator is started and stopped."""

    def __init__(
        self,
        topics: Mapping[str, int],
        settings: GroupSettings | None = None,
        *,
        partitions: int = 1,
        sharing: ShareSettings | None = None,
    ) -> None:
        self.topics = TopicList(topics)
        self.streams = [MemoryStream() for _ in range(partitions)]
        self.settings = settings or GroupSettings(initial_rebalance_delay_ms=0)
        self.sharing = sharing or ShareSettings()
        self.place = (self.topics.id_of("t"), 0)
        self.created = 0
        self.learns_of_creation = True
        self.before_creation: Callable[[], Awaitable[None]] | None = None

    @property
    def stream(self) -> MemoryStream:
        """The only partition of the internal topic."""
        [stream] = self.streams
        return stream

    def coordinator(self, settings: GroupSettings | None = None) -> GroupCoordinator:
        """One that is not started yet."""
        topic = InternalTopic(
            self._create,
            lambda partition: self.streams[partition],
            lambda name: self.topics.counts.get(name, 0),
        )
        return GroupCoordinator(
            settings or self.settings, topic, self.topics, SimClock(), sharing=self.sharing
        )

    def start(self, settings: GroupSettings | None = None) -> GroupCoordinator:
        """A coordinator that loads what the streams hold."""
        started = self.coordinator(settings)
        started.start()
        return started

    async def restart(self, coordinator: GroupCoordinator) -> GroupCoordinator:
        """The next one, once it has loaded."""
        coordinator.stop()
        again = self.start()
        await loaded(again)
        return again

    def stream_of(self, coordinator: GroupCoordinator, group_id: str = "g") -> MemoryStream:
        """The stream that keeps a group."""
        return self.streams[coordinator.coordinator_partition(group_id)]

    async def _create(self) -> None:
        if self.before_creation is not None:
            await self.before_creation()
        self.created += 1
        if self.learns_of_creation:
            self.topics.counts[OFFSETS_TOPIC] = len(self.streams)


async def loaded(coordinator: GroupCoordinator) -> None:
    """Return once every shard has loaded."""
    for _ in range(1_000):
        if coordinator.is_loaded():
            return
        await asyncio.sleep(0)
    raise AssertionError("the shards do not load")
