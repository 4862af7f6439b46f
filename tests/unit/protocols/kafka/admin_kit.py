"""Calls to the administration handlers, over real topics and streams that only have sizes."""

from collections.abc import Mapping, Sequence

from tests.kit.clock import ManualClock
from tests.kit.kafka import HandlerClient
from tests.kit.topics import NODE, topics_admin

from mainstem.broker.services.cluster_service import ClusterAdmin
from mainstem.broker.services.topics_service import TopicsAdmin
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.ids import Offset
from mainstem.model.metadata import Node
from mainstem.protocols.kafka.call import Peer
from mainstem.protocols.kafka.handlers import cluster, configs, quorum, replicas, topics

SERVED = {
    **cluster.SERVED,
    **configs.SERVED,
    **quorum.SERVED,
    **replicas.SERVED,
    **topics.SERVED,
}


class Held:
    """Partitions of ten records each, as far as administration sees them."""

    END = 10

    def __init__(self, admin: TopicsAdmin) -> None:
        self._admin = admin
        self.starts: dict[tuple[str, int], int] = {}

    async def delete_records(self, topic: str, partition: int, before: int) -> Offset:
        known = self._admin.by_name(topic)
        if known is None or partition >= len(known.streams):
            raise InvalidRequest(ErrorCode.UNKNOWN_TOPIC)
        start = self.END if before == -1 else before
        if not 0 <= start <= self.END:
            raise InvalidRequest(ErrorCode.OFFSET_OUT_OF_RANGE)
        self.starts[topic, partition] = start
        return Offset(start)

    def sizes(self, topic: str | None = None) -> Sequence[tuple[str, int, int]]:
        return [
            (each.name, stream.id.partition, 100 + stream.id.partition)
            for each in self._admin.all()
            if topic in (None, each.name)
            for stream in each.streams
        ]


class Counter:
    """The part of the counter that administration needs."""

    def __init__(self, admin: TopicsAdmin, node: Node) -> None:
        self.topics = admin
        self.streams = Held(admin)
        self.cluster = ClusterAdmin(admin._placement, lambda: admin.node, ManualClock())
        self.node = node


class Client(HandlerClient):
    """Asks the handlers of administration."""

    def __init__(self, counter: Counter) -> None:
        super().__init__(SERVED, counter)
        self.counter = counter
        self.peer = Peer("10.0.0.9", 50_000, "192.0.2.7", 31_092)


async def new_client(static: Mapping[str, str] | None = None, *, node: Node = NODE) -> Client:
    """A client of a node that has just started."""
    admin = await topics_admin({"log.dirs": "/", **(static or {})})
    admin.node = node
    return Client(Counter(admin, node))
