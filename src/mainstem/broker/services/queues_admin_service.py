"""Administration of queues: lists, browsing a queue, moving its messages."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from mainstem.broker.api.queues import (
    DEFAULT_EXCHANGE,
    BindingView,
    ExchangeView,
    PeekedMessage,
    Published,
    QueueView,
)
from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest
from mainstem.model.message import Message
from mainstem.queues.api_types import PublishStatus
from mainstem.queues.counts import QueueCounts
from mainstem.queues.dead_letter_history import DEAD_LETTER_ID, death_history_of
from mainstem.queues.drivers.queues_driver import QueuesDriver
from mainstem.queues.drivers.virtual_host_driver import VirtualHost
from mainstem.queues.engine.queue_machine import Queue
from mainstem.queues.engine.subscriber_queue import SubscriberQueue
from mainstem.queues.facts import ONLY_LANE
from mainstem.queues.routing.exchange_topics import DEFAULT_NAMESPACE, data_topic
from mainstem.queues.routing.message_routing import routing_of
from mainstem.queues.storage.ledger import QueuedItem

BROWSED_MAX = 10_000


class QueueAdminService:
    """The ``QueuesAdmin`` of one node."""

    def __init__(self, driver: QueuesDriver) -> None:
        self._driver = driver

    def namespaces(self) -> Sequence[str]:
        """Every namespace in use, and the default one."""
        return sorted({DEFAULT_NAMESPACE, *self._driver.hosts.by_name})

    def exchanges(self, namespace: str) -> Iterator[ExchangeView]:
        """Every exchange of a namespace."""
        host = self._host(namespace)
        if host is None:
            return
        topology = host.state.topology
        for exchange in topology.live:
            taken = host.state.topics.get(exchange.name)
            topic = "" if taken is None else taken.topic
            if exchange.name == DEFAULT_EXCHANGE:
                topic = data_topic(namespace)
            yield ExchangeView(
                namespace=namespace,
                exchange=exchange,
                topic=topic,
                bindings=len(topology.live.bindings(exchange.name)),
            )

    def bindings(self, namespace: str) -> Iterator[BindingView]:
        """Every binding of a namespace."""
        host = self._host(namespace)
        if host is None:
            return
        live = host.state.topology.live
        for exchange in live:
            for binding in live.bindings(exchange.name):
                yield BindingView(namespace=namespace, binding=binding)

    def queues(self, namespace: str) -> Iterator[QueueView]:
        """Every queue of a namespace."""
        host = self._host(namespace)
        if host is None:
            return
        for name in sorted(host.queues.by_name):
            if name in host.queues.by_name:
                yield self.describe(namespace, name)

    def describe(self, namespace: str, name: str) -> QueueView:
        """Describe one queue."""
        queue = self._queue(namespace, name)
        body = queue.body
        lanes = list(body.lanes.values())
        return QueueView(
            namespace=namespace,
            name=name,
            settings=body.settings,
            ready=body.ready_count,
            unsettled=len(body.leases),
            delayed=sum(len(lane.delayed) for lane in lanes),
            dying=sum(lane.dying for lane in lanes),
            total=len(body.ledger),
            total_bytes=body.ledger.total_bytes,
            consumers=len(queue.consumer_registry),
        )

    async def browse(
        self, namespace: str, name: str, *, start: int = 0, limit: int = 100
    ) -> Sequence[PeekedMessage]:
        """Messages from a sequence on, in order, without taking them."""
        queue = self._queue(namespace, name)
        return list(islice(self._browsed(queue, start), min(limit, BROWSED_MAX)))

    async def move(
        self,
        namespace: str,
        source: str,
        *,
        destination: str | None = None,
        where: Callable[[PeekedMessage], bool] | None = None,
        limit: int | None = None,
    ) -> int:
        """Publish ready messages of a queue to another one and remove them from the first."""
        host = self._host(namespace)
        queue = self._queue(namespace, source)
        assert host is not None, "a queue has a namespace"
        if queue.body.ledger.is_fanout:
            raise InvalidRequest(
                ErrorCode.INVALID_REQUEST, "messages of a fan-out queue cannot be moved"
            )
        if destination is not None:
            self._queue(namespace, destination)
        wanted = [
            each
            for each in self._browsed(queue, 0)
            if each.place == "ready" and (where is None or where(each))
        ]
        moved = 0
        for each in wanted[:limit]:
            if await self._publish(host, each, destination):
                moved += await self._take_out(host, source, each.sequence)
        return moved

    def counts(self) -> QueueCounts:
        """Counts of all queues since the node started."""
        return self._driver.context.counts

    def _host(self, namespace: str) -> VirtualHost | None:
        self._driver.hosts.check_fresh()
        return self._driver.hosts.by_name.get(namespace)

    def _queue(self, namespace: str, name: str) -> Queue:
        host = self._host(namespace)
        known = None if host is None else host.queues.by_name.get(name)
        queue = None if known is None else known[0].shard.queue(known[1])
        if queue is None:
            raise InvalidRequest(ErrorCode.UNKNOWN_QUEUE, f"no queue '{name}'", subject=name)
        return queue

    def _browsed(self, queue: Queue, start: int) -> Iterator[PeekedMessage]:
        body = queue.body
        lane = body.lanes.get(ONLY_LANE)
        items: dict[int, QueuedItem] = {**body.ledger.messages} if body.ledger.is_fanout else {}
        if lane is not None and not body.ledger.is_fanout:
            items = lane.ledger.items
        for sequence in sorted(each for each in items if each >= start):
            item = items[sequence]
            bodies = self._driver.context.bodies
            published = bodies.read_published(item.stream, item.pointer.offset)
            if published is None:
                continue
            message, exchange = published
            place = _place(lane, item)
            yield PeekedMessage(sequence, message, exchange, place, item.acquired, item.failures)

    async def _publish(
        self, host: VirtualHost, each: PeekedMessage, destination: str | None
    ) -> bool:
        message, exchange = each.message, DEFAULT_EXCHANGE
        keys: tuple[str, ...] = (destination or "",)
        if destination is None:
            exchange, keys = _origin(message)
        done: asyncio.Future[Published] = asyncio.get_running_loop().create_future()

        def settled(_tokens: Sequence[int], published: Published) -> None:
            if not done.done():
                done.set_result(published)

        message = message.with_header(DEAD_LETTER_ID, None)._replace(key=keys[0].encode())
        routing = routing_of(message)._replace(keys=keys)
        publisher = self._driver.hosts.publisher(host.name, settled)
        publisher.publish(exchange, message, routing, 0)
        published = await done
        if published.error is not None:
            raise published.error
        return published.status is PublishStatus.STORED and published.is_routed

    async def _take_out(self, host: VirtualHost, source: str, sequence: int) -> int:
        """Remove one ready message of a queue."""
        known = host.queues.by_name.get(source)
        queue = None if known is None else known[0].shard.queue(known[1])
        if known is None or queue is None:
            return 0
        shard, number = known
        effects = queue.on_purged(shard.now_ms(), moved=(sequence,))
        withdrawn = effects.count
        shard.take(number, effects)
        await shard.safe()
        return withdrawn


def _place(lane: SubscriberQueue | None, item: QueuedItem) -> str:
    if item.reason is not None:
        return "dying"
    if lane is None or item.sequence in lane.ready:
        return "ready"
    return "delayed" if item.sequence in lane.delayed else "unsettled"


def _origin(message: Message) -> tuple[str, tuple[str, ...]]:
    """Where a dead letter was first dead-lettered: exchange and keys of its oldest entry.

    Raises:
        InvalidRequest: the message is not a dead letter.
    """
    try:
        deaths = death_history_of(message)
    except Corrupt:
        deaths = ()
    if not deaths:
        raise InvalidRequest(
            ErrorCode.INVALID_REQUEST,
            "the message is not a dead letter, so it has no queue to return to",
            remedy="name the queue to move it to",
        )
    first = deaths[-1]
    return first.exchange, first.routing_keys or ("",)
