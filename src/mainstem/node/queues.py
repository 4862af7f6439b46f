"""The queues of a node: how they reach its topics and streams."""

from collections.abc import Callable, Iterator, Sequence
from ipaddress import ip_address
from typing import Any, Final

from mainstem.broker.admin import INTERNAL_REPLICAS, TopicsAdmin, new_topic_id
from mainstem.broker.queues_service import NodeQueues
from mainstem.cluster.peers.frames import Service
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.model.ids import NO_NODE, NodeId
from mainstem.model.metadata import Node
from mainstem.model.topic_name import QUEUES_TOPIC
from mainstem.node.cluster import ClusterNode
from mainstem.node.listener_spec import is_loopback
from mainstem.placement.records import CreateTopic, DeleteTopic
from mainstem.placement.service import PlacementService
from mainstem.protocols.relay_listener import Relays
from mainstem.queues.queues_runtime import QueuesRuntime, TopicDesk, TopicWish
from mainstem.queues.upkeep_runtime import QueueUpkeep
from mainstem.streams.service import StreamService
from mainstem.streams.writer_driver import StreamWriter

ASK_TIMEOUT_S: Final = 2.0


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
            is_there=lambda name: topics.by_name(name) is not None,
            doors=self._doors,
            trim=streams.delete_records,
            flush=streams.flush,
        )
        self.runtime = QueuesRuntime(desk, streams, clock, memory_bytes_max=memory_bytes_max)
        self.upkeep = QueueUpkeep(self.runtime)
        self.counter = NodeQueues(self.runtime)
        streams.watch(self.runtime.stream_opened, self.runtime.stream_lost)

    async def _ensure(self, wish: TopicWish) -> None:
        if self._topics.by_name(wish.name) is not None:
            return
        nodes = self._placed()
        try:
            await self._placement.submit(
                CreateTopic(
                    new_topic_id(),
                    wish.name,
                    wish.partitions,
                    len(nodes),
                    dict(wish.configs),
                    internal=wish.is_internal,
                    assignments=(nodes,) * wish.partitions,
                )
            )
        except InvalidRequest as error:
            is_there = self._topics.by_name(wish.name) is not None
            if error.code is not ErrorCode.TOPIC_EXISTS or not is_there:
                raise

    def _placed(self) -> tuple[NodeId, ...]:
        """Where all streams of queues are, in one order, so that one node writes all of them."""
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

    def _doors(self, name: str) -> Sequence[StreamWriter]:
        topic = self._topics.by_name(name)
        if topic is None:
            return ()
        try:
            return [self._streams.door(name, partition) for partition in range(len(topic.streams))]
        except Unavailable as error:
            raise Unavailable(
                ErrorCode.NOT_COORDINATOR,
                f"node {topic.streams[0].writer} serves queues",
                subject=name,
                remedy="connect to that node",
            ) from error


class QueueGuide:
    """Leads clients of queues to the node that serves them, where several nodes form a cluster."""

    def __init__(
        self, queues: NodeQueueRooms, cluster: ClusterNode, addresses: Callable[[], dict[str, Any]]
    ) -> None:
        self._runtime = queues.runtime
        self._cluster = cluster
        self._addresses = addresses
        cluster.peers.serve(Service.QUEUES, self._answer)

    def relays(self, protocol: str, host: str) -> Relays:
        """How a listener on ``host`` passes its clients on.

        What others reach passes nobody on to a listener that trusts this machine.
        """
        return Relays(
            lambda: self._owner() is not None,
            lambda: self._locate(protocol, is_here=is_loopback(host)),
        )

    def _owner(self) -> NodeId | None:
        """The other node that serves queues, if one does."""
        topic = self._cluster.service.catalogue.topic(QUEUES_TOPIC)
        if topic is None or self._runtime.shards:
            return None
        owner = topic.streams[0].writer
        return None if owner in (NO_NODE, self._cluster.node) else owner

    async def _locate(self, protocol: str, *, is_here: bool) -> tuple[str, int] | None:
        """Where the node that serves queues listens; None if it cannot be told now."""
        owner = self._owner()
        if owner is None:
            return None
        try:
            answer = await self._cluster.peers.ask(
                owner, Service.QUEUES, [protocol.encode()], timeout_s=ASK_TIMEOUT_S
            )
        except MainstemError:
            return None
        host, _, port = bytes(answer).decode().rpartition(":")
        if not port:
            return None
        host = host.strip("[]")
        if _is_everywhere(host):
            host = next(node.host for node in self._nodes() if node.id == owner)
        return None if is_loopback(host) and not is_here else (host, int(port))

    def _nodes(self) -> Iterator[Node]:
        return (known.node for known in self._cluster.service.catalogue.nodes())

    async def _answer(self, _: NodeId, body: memoryview) -> Sequence[bytes]:
        """Where this node listens for a protocol, if it serves queues."""
        if self._runtime.refusal is not None or not self._runtime.shards:
            return [b""]
        return [str(self._addresses().get(bytes(body).decode(), "")).encode()]


def _is_everywhere(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False
