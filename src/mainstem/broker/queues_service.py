"""Queues, exchanges and bindings as protocols see them, on the runtime of this node.

Whatever changes what is declared is answered once it is committed. Messages go through publishers
and subscriptions, which answer for themselves.
"""

from itertools import count

from msgspec.structs import replace

from mainstem.broker.queues_admin_service import QueuesDesk
from mainstem.broker.queues_api import (
    DEFAULT_EXCHANGE,
    NATIVE,
    Binding,
    ConsumerWish,
    Deliver,
    Delivery,
    Ended,
    Exchange,
    OnDifference,
    OnFlow,
    OnSettled,
    QueueSettings,
    QueueStatus,
)
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.limits import BATCH_BYTES_MAX
from mainstem.queues.consumers import Consumer
from mainstem.queues.effects import Effects
from mainstem.queues.exchange_topics import encoded_topic, topic_for
from mainstem.queues.publisher_runtime import LivePublisher
from mainstem.queues.queue import Queue
from mainstem.queues.queue_shard_runtime import QueueShardRuntime
from mainstem.queues.queues_runtime import QueuesRuntime, TopicWish
from mainstem.queues.settings import DEAD_SUFFIX, QueueName, default_dead_letter_queue
from mainstem.queues.space_book import TopicTaken
from mainstem.queues.space_runtime import Space
from mainstem.queues.subscription_runtime import Holder, LiveSubscription

# An exchange keeps what it got for an hour, or a gibibyte, beyond what queues need.
EXCHANGE_CONFIGS = {
    "cleanup.policy": "delete",
    "retention.ms": "3600000",
    "retention.bytes": "1073741824",
    "segment.bytes": "67108864",
    # How large a message may be is for the protocols to say.
    "max.message.bytes": str(BATCH_BYTES_MAX),
}
EXCHANGE_PARTITIONS = 1


class NodeQueues:
    """The ``Queues`` of one node."""

    def __init__(self, runtime: QueuesRuntime) -> None:
        self._runtime = runtime
        self._holders = count(1)
        self.admin = QueuesDesk(runtime)

    async def ready(self) -> None:
        """Wait until what is stored is loaded."""
        await self._runtime.ready()

    # Exchanges and bindings

    async def declare_exchange(
        self, namespace: str, wish: Exchange, *, passive: bool = False, shared: bool = False
    ) -> Exchange:
        """Let an exchange be there; ``passive`` only looks."""
        space = await self._runtime.ensure(namespace)
        topology = space.book.topology
        facts = topology.declare(wish, passive=passive)
        if facts:
            if wish.name not in space.book.topics:
                await self._take_topic(space, wish.name, is_shared=shared)
                # Somebody else may have declared it while the topic was made.
                facts = topology.declare(wish)
            space.change(facts)
            self._open(space, wish.name)
            await space.home.safe()
        return topology.live.exchange(wish.name)

    async def delete_exchange(self, namespace: str, name: str, *, if_unused: bool = False) -> None:
        """Take an exchange away, with its bindings."""
        space = await self._runtime.ensure(namespace)
        space.change(space.book.topology.delete(name, if_unused=if_unused))
        await space.home.safe()

    async def bind(self, namespace: str, binding: Binding, *, connection: str = "") -> None:
        """Let messages of an exchange go to a queue or to another exchange, from now on."""
        space = await self._runtime.ensure(namespace)
        topology = space.book.topology
        if binding.destination.is_queue:
            space.need(binding.destination.name, connection)
        facts = topology.bind(binding)
        if not facts:
            return
        if binding.source not in space.streams:
            # An exchange that is there from the start gets its topic with its first binding.
            await self._take_topic(space, binding.source, is_shared=False)
            self._open(space, binding.source)
            facts = topology.bind(binding)
        space.change(facts)
        await space.home.safe()

    async def unbind(self, namespace: str, binding: Binding, *, connection: str = "") -> None:
        """End a binding; nothing that was routed is lost."""
        space = await self._runtime.ensure(namespace)
        if binding.destination.is_queue and binding.destination.name in space.queues:
            space.need(binding.destination.name, connection)
        space.change(space.book.topology.unbind(binding))
        await space.home.safe()

    # Queues

    async def declare_queue(
        self,
        namespace: str,
        name: str,
        settings: QueueSettings,
        *,
        connection: str = "",
        policy: OnDifference = OnDifference.FAIL,
        keeps_failures: bool = False,
    ) -> QueueStatus:
        """Let a queue be there; ``connection`` owns it if it is exclusive."""
        space = await self._runtime.ensure(namespace)
        if keeps_failures:
            settings = await self._with_dead_letters(space, name, settings)
        shard = self._runtime.shard_of(QueueName(namespace, name))
        declared, effects = shard.shard.on_declare(
            QueueName(namespace, name),
            settings,
            shard.now_ms(),
            connection=connection,
            policy=policy,
        )
        space.add_queue(name, shard, declared.queue)
        if declared.is_new:
            _, _, queue = space.need(name, connection)
            space.begin(queue, effects)
        has_facts = bool(effects.facts)
        shard.carry_out(effects)
        if has_facts:
            await shard.safe()
        return QueueStatus(
            name=name,
            messages=declared.messages,
            consumers=declared.consumers,
            is_new=declared.is_new,
        )

    async def _with_dead_letters(
        self, space: Space, name: str, settings: QueueSettings
    ) -> QueueSettings:
        """The settings with a place for messages that were tried often enough."""
        known = space.queues.get(name)
        if known is not None:
            current = known[0].live.shard.queues.entries[known[1]].settings
            if settings == NATIVE and name.endswith(DEAD_SUFFIX):
                # Nothing was asked for: whoever wants to consume dead letters takes it as it is.
                return current
            if settings.dead_letter_exchange is not None:
                return settings
            return replace(
                settings,
                dead_letter_exchange=current.dead_letter_exchange,
                dead_letter_key=current.dead_letter_key,
            )
        dead = default_dead_letter_queue(name, settings)
        if dead is None:
            return settings
        await self.declare_queue(space.name, dead, QueueSettings(), policy=OnDifference.IGNORE)
        return replace(settings, dead_letter_exchange=DEFAULT_EXCHANGE, dead_letter_key=dead)

    def status(
        self, namespace: str, name: str, *, connection: str = "", is_use: bool = False
    ) -> QueueStatus:
        """A queue that is there."""
        shard, number, queue = self._need(namespace, name, connection)
        if is_use:
            queue.attendance.used(shard.now_ms())
            shard.take(number, Effects())
        return QueueStatus(
            name=name,
            messages=queue.body.ready_count,
            consumers=len(queue.attendance),
            tells_failures=queue.body.settings.tells_failures,
        )

    async def delete_queue(
        self,
        namespace: str,
        name: str,
        *,
        connection: str = "",
        if_unused: bool = False,
        if_empty: bool = False,
    ) -> int:
        """Take a queue away; how many messages were ready."""
        shard, _, _ = self._need(namespace, name, connection)
        effects = shard.shard.on_delete(
            QueueName(namespace, name),
            shard.now_ms(),
            connection=connection,
            if_unused=if_unused,
            if_empty=if_empty,
        )
        messages = effects.count
        shard.carry_out(effects)
        await shard.safe()
        await self._runtime.space(namespace).home.safe()
        return messages

    async def purge_queue(self, namespace: str, name: str, *, connection: str = "") -> int:
        """Drop all that is in nobody's hands; how many messages."""
        shard, number, queue = self._need(namespace, name, connection)
        effects = shard.take(number, queue.on_purged(shard.now_ms()))
        messages = effects.count
        await shard.safe()
        return messages

    def connection_gone(self, connection: str) -> None:
        """A connection ended: its exclusive queues go."""
        for shard in self._runtime.shards:
            effects = shard.shard.on_connection_gone(connection, shard.now_ms())
            if effects.notices or effects.facts:
                shard.carry_out(effects)

    # Messages

    def publisher(
        self, namespace: str, settled: OnSettled, flow: OnFlow | None = None
    ) -> LivePublisher:
        """Somebody wants to publish."""
        return self._runtime.publisher(namespace, settled, flow)

    def consume(
        self, namespace: str, queue: str, wish: ConsumerWish, deliver: Deliver, ended: Ended
    ) -> LiveSubscription:
        """Somebody wants to consume."""
        shard, number, found = self._need(namespace, queue, wish.connection)
        consumer = Consumer(
            f"{wish.name}#{next(self._holders)}",
            wish.window,
            priority=wish.priority,
            no_ack=wish.no_ack,
            shared=wish.shared,
        )
        subscription = LiveSubscription(shard, number, consumer, deliver, ended)
        effects = found.on_consume(
            consumer, shard.now_ms(), is_exclusive=wish.is_exclusive, subscriber=wish.subscriber
        )
        shard.subscribe(subscription)
        if wish.shared is not None:
            self._runtime.share(subscription)
        shard.take(number, effects)
        return subscription

    async def get(
        self, namespace: str, queue: str, *, connection: str = "", no_ack: bool = False
    ) -> tuple[Delivery | None, int]:
        """One message, if one is ready, and how many are left."""
        shard, number, found = self._need(namespace, queue, connection)
        holder = Holder(shard, number, f"get#{next(self._holders)}")
        delivery = shard.get(number, found, holder, no_ack=no_ack)
        return delivery, found.body.ready_count

    def _need(
        self, namespace: str, name: str, connection: str
    ) -> tuple[QueueShardRuntime, int, Queue]:
        space = self._runtime.find(namespace)
        if space is None:
            raise InvalidRequest(ErrorCode.UNKNOWN_QUEUE, f"no queue '{name}'", subject=name)
        found = space.need(name, connection)
        # A verb comes behind what holders said before it, although that waits for the turn's end.
        found[0].settle_all()
        return found

    # Topics of exchanges

    async def _take_topic(self, space: Space, exchange: str, *, is_shared: bool) -> None:
        """Let a topic keep the messages of an exchange."""
        if exchange == DEFAULT_EXCHANGE or exchange in space.book.topics:
            return
        topics = self._runtime.topics
        topic = topic_for(space.name, exchange)
        if topics.doors(topic) and not is_shared:
            raise InvalidRequest(
                ErrorCode.RESOURCE_LOCKED,
                f"topic '{topic}' is there and is no exchange",
                subject=exchange,
                remedy="declare the exchange as shared, or choose another name",
            )
        is_shared = bool(topics.doors(topic))
        try:
            await topics.ensure(_exchange_topic(topic))
        except InvalidRequest as error:
            # A topic whose name differs in '.' and '_' only is in the way.
            if error.code is not ErrorCode.INVALID_TOPIC_NAME:
                raise
            topic = encoded_topic(space.name, exchange)
            await topics.ensure(_exchange_topic(topic))
        if exchange not in space.book.topics:
            space.record(TopicTaken(exchange, topic, is_shared))
        space.prepare(topics.doors(topic))
        await space.home.safe()

    def _open(self, space: Space, exchange: str) -> None:
        """Serve an exchange whose topic is there."""
        if exchange in space.streams:
            space.note_exchange(exchange)
            return
        taken = space.book.topics[exchange]
        doors = self._runtime.topics.doors(taken.topic)
        space.prepare(doors)
        space.open_exchange(exchange, doors)


def _exchange_topic(name: str) -> TopicWish:
    return TopicWish(name, EXCHANGE_PARTITIONS, EXCHANGE_CONFIGS, is_internal=False)
