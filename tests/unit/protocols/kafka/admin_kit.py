"""Calls to the administration handlers, over real topics and streams that only have sizes."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import isawaitable
from typing import Any, TypeVar, cast

from tests.unit.broker.kit import NODE, FixedClock, topics_admin

from mainstem.broker.admin import TopicsAdmin
from mainstem.broker.cluster_service import ClusterAdmin
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.ids import Offset
from mainstem.model.metadata import Node
from mainstem.protocols.kafka.call import Call, Peer
from mainstem.protocols.kafka.handlers import cluster, configs, quorum, replicas, topics
from mainstem.wire.kafka import codec

T = TypeVar("T")

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
        self.cluster = ClusterAdmin(admin._placement, lambda: admin.node, FixedClock())
        self.node = node


class Client:
    """Sends requests through the codec, as a connection would, so that versions matter."""

    def __init__(self, counter: Counter) -> None:
        self.counter = counter
        self.peer = Peer("10.0.0.9", 50_000, "192.0.2.7", 31_092)

    async def ask(self, api_key: int, version: int, request: Any) -> Any:
        call = Call(api_key, version, "tests", self.peer, cast("Any", self.counter))
        sent = _joined(codec.encode_request(api_key, version, request))
        received = codec.decode_request(api_key, version, sent, 0, len(sent))
        answer = SERVED[api_key].handler(call, received)
        if isawaitable(answer):
            answer = await answer
        returned = _joined(codec.encode_response(api_key, version, answer))
        return codec.decode_response(api_key, version, returned, 0, len(returned))


def tell(
    story: Callable[[Client], Awaitable[T]],
    static: Mapping[str, str] | None = None,
    node: Node = NODE,
) -> T:
    """Run a story against a node that has just started."""

    async def run() -> T:
        admin = await topics_admin({"log.dirs": "/", **(static or {})})
        admin.node = node
        return await story(Client(Counter(admin, node)))

    return asyncio.run(run())


def _joined(chunks: Sequence[Any]) -> bytes:
    return b"".join(chunks)
