"""The queues of a node: how they reach its topics and streams."""

from collections.abc import Sequence

from mainstem.broker.admin import INTERNAL_REPLICAS, TopicsAdmin, new_topic_id
from mainstem.broker.queues_service import NodeQueues
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.placement.records import CreateTopic, DeleteTopic
from mainstem.placement.service import PlacementService
from mainstem.queues.queues_runtime import QueuesRuntime, TopicDesk, TopicWish
from mainstem.queues.upkeep_runtime import QueueUpkeep
from mainstem.streams.service import StreamService
from mainstem.streams.writer_driver import StreamWriter


class NodeQueueRooms:
    """The runtime of queues, its upkeep, and what protocols see of it."""

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
        desk = TopicDesk(
            ensure=self._ensure,
            delete=self._delete,
            doors=self._doors,
            trim=streams.delete_records,
            flush=streams.flush,
        )
        self.runtime = QueuesRuntime(desk, streams, clock, memory_bytes_max=memory_bytes_max)
        self.upkeep = QueueUpkeep(self.runtime)
        self.counter = NodeQueues(self.runtime)

    async def _ensure(self, wish: TopicWish) -> None:
        if self._topics.by_name(wish.name) is not None:
            return
        try:
            if wish.is_internal:
                await self._placement.submit(
                    CreateTopic(
                        new_topic_id(),
                        wish.name,
                        wish.partitions,
                        min(INTERNAL_REPLICAS, len(self._topics.nodes())),
                        dict(wish.configs),
                        internal=True,
                    )
                )
            else:
                await self._topics.create(
                    wish.name,
                    partitions=wish.partitions,
                    replication_factor=-1,
                    configs=wish.configs,
                )
        except InvalidRequest as error:
            is_there = self._topics.by_name(wish.name) is not None
            if error.code is not ErrorCode.TOPIC_EXISTS or not is_there:
                raise

    async def _delete(self, name: str) -> None:
        topic = self._topics.by_name(name)
        if topic is not None:
            await self._placement.submit(DeleteTopic(topic.id))

    def _doors(self, name: str) -> Sequence[StreamWriter]:
        topic = self._topics.by_name(name)
        if topic is None:
            return ()
        return [self._streams.door(name, partition) for partition in range(len(topic.streams))]
