"""The queues of a node: how they reach its topics and streams."""

from collections.abc import Sequence

from mainstem.broker.services.queues_service import QueueService
from mainstem.broker.services.topics_service import INTERNAL_REPLICAS, TopicsAdmin, new_topic_id
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, InvalidRequest, Unavailable
from mainstem.model.ids import NodeId
from mainstem.model.topic_name import QUEUES_TOPIC
from mainstem.placement.changes.commands import CreateTopic, DeleteTopic
from mainstem.placement.service import PlacementService
from mainstem.queues.drivers.queues_driver import QueuesDriver, TopicAccess, TopicRequirement
from mainstem.queues.drivers.upkeep_driver import QueueUpkeep
from mainstem.streams.service import StreamService
from mainstem.streams.writer.stream_driver import StreamWriter


class QueueServices:
    """The driver of queues, its upkeep, and the broker API for it."""

    def __init__(
        self,
        placement: PlacementService,
        topics: TopicsAdmin,
        streams: StreamService,
        clock: Clock,
        *,
        memory_bytes_max: int,
    ) -> None:
        self._placement = placement
        self._topics = topics
        self._streams = streams
        topic_access = TopicAccess(
            ensure=self._ensure,
            delete=self._delete,
            is_there=lambda name: topics.by_name(name) is not None,
            writers=self._writers,
            trim=streams.delete_records,
            flush=streams.flush,
        )
        self.driver = QueuesDriver(topic_access, streams, clock, memory_bytes_max=memory_bytes_max)
        self.upkeep = QueueUpkeep(self.driver)
        self.service = QueueService(self.driver)
        streams.table.watch(self.driver.stream_opened, self.driver.stream_lost)

    @property
    def is_served(self) -> bool:
        """Whether this node serves queues now."""
        return self.driver.hosts.refusal is None and bool(self.driver.shards)

    async def _ensure(self, requirement: TopicRequirement) -> None:
        if self._topics.by_name(requirement.name) is not None:
            return
        nodes = self._placed()
        try:
            await self._placement.submit(
                CreateTopic(
                    new_topic_id(),
                    requirement.name,
                    requirement.partitions,
                    len(nodes),
                    dict(requirement.configs),
                    internal=requirement.is_internal,
                    assignments=(nodes,) * requirement.partitions,
                )
            )
        except InvalidRequest as error:
            is_there = self._topics.by_name(requirement.name) is not None
            if error.code is not ErrorCode.TOPIC_EXISTS or not is_there:
                raise

    def _placed(self) -> tuple[NodeId, ...]:
        """The replicas of all streams of queues, in one order, so that one node writes them all."""
        known = self._topics.by_name(QUEUES_TOPIC)
        if known is not None:
            return known.streams[0].wanted
        here = self._topics.node.id
        others = [node.id for node in self._topics.nodes() if node.id != here]
        return (here, *others)[:INTERNAL_REPLICAS]

    async def _delete(self, name: str) -> None:
        topic = self._topics.by_name(name)
        if topic is not None:
            await self._placement.submit(DeleteTopic(topic.id))

    def _writers(self, name: str) -> Sequence[StreamWriter]:
        topic = self._topics.by_name(name)
        if topic is None:
            return ()
        try:
            return [
                self._streams.partition(name, partition) for partition in range(len(topic.streams))
            ]
        except Unavailable as error:
            raise Unavailable(
                ErrorCode.NOT_COORDINATOR,
                f"node {topic.streams[0].writer} serves queues",
                subject=name,
                remedy="connect to that node",
            ) from error
