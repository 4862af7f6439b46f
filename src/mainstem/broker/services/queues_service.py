"""Queues, exchanges and bindings as protocols see them, on the queues driver of this node.

Declarations and deletions return once they are committed. Messages go through publishers and
subscriptions, which report their own results.
"""

from itertools import count

from msgspec.structs import replace

from mainstem.broker.api.queues import (
    DEFAULT_EXCHANGE,
    NATIVE,
    Binding,
    ConsumeRequest,
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
from mainstem.broker.services.queues_admin_service import QueueAdminService
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.limits import BATCH_BYTES_MAX
from mainstem.queues.drivers.queues_driver import QueuesDriver, TopicRequirement
from mainstem.queues.drivers.virtual_host_driver import VirtualHost
from mainstem.queues.engine.consumers import Consumer
from mainstem.queues.engine.effects import QueueEffects
from mainstem.queues.engine.queue_machine import Queue
from mainstem.queues.publishing.publisher_driver import QueuePublisher
from mainstem.queues.routing.exchange_topics import encoded_topic, topic_for
from mainstem.queues.settings import DEAD_SUFFIX, QueueName, default_dead_letter_queue
from mainstem.queues.shards.shard_driver import QueueShardDriver
from mainstem.queues.shards.subscription_driver import DeliveryHolder, QueueSubscription
from mainstem.queues.storage.virtual_host_state import TopicTaken

# An exchange keeps messages for an hour, or a gibibyte, beyond what queues need.
EXCHANGE_CONFIGS = {
    "cleanup.policy": "delete",
    "retention.ms": "3600000",
    "retention.bytes": "1073741824",
    "segment.bytes": "67108864",
    # The protocols limit the size of messages.
    "max.message.bytes": str(BATCH_BYTES_MAX),
}
EXCHANGE_PARTITIONS = 1


class QueueService:
    """The ``Queues`` of one node."""

    def __init__(self, driver: QueuesDriver) -> None:
        self._driver = driver
        self._holders = count(1)
        self.admin = QueueAdminService(driver)

    async def ready(self) -> None:
        """Wait until stored state is loaded."""
        await self._driver.ready()

    # Exchanges and bindings

    async def declare_exchange(
        self, namespace: str, declared: Exchange, *, passive: bool = False, shared: bool = False
    ) -> Exchange:
        """Declare an exchange; ``passive`` only checks that it exists."""
        host = await self._driver.ensure(namespace)
        topology = host.state.topology
        facts = topology.declare(declared, passive=passive)
        if facts:
            if declared.name not in host.state.topics:
                await self._take_topic(host, declared.name, is_shared=shared)
                # Another client may have declared it while the topic was created.
                facts = topology.declare(declared)
            host.exchanges.change(facts)
            self._open(host, declared.name)
            await host.home.safe()
        return topology.live.exchange(declared.name)

    async def delete_exchange(self, namespace: str, name: str, *, if_unused: bool = False) -> None:
        """Delete an exchange with its bindings."""
        host = await self._driver.ensure(namespace)
        host.exchanges.change(host.state.topology.delete(name, if_unused=if_unused))
        await host.home.safe()

    async def bind(self, namespace: str, binding: Binding, *, connection: str = "") -> None:
        """Bind an exchange to a queue or to another exchange."""
        host = await self._driver.ensure(namespace)
        topology = host.state.topology
        if binding.destination.is_queue:
            host.queues.need(binding.destination.name, connection)
        facts = topology.bind(binding)
        if not facts:
            return
        if binding.source not in host.exchanges.streams:
            # A predeclared exchange gets its topic with its first binding.
            await self._take_topic(host, binding.source, is_shared=False)
            self._open(host, binding.source)
            facts = topology.bind(binding)
        host.exchanges.change(facts)
        await host.home.safe()

    async def unbind(self, namespace: str, binding: Binding, *, connection: str = "") -> None:
        """Remove a binding; messages already routed are kept."""
        host = await self._driver.ensure(namespace)
        if binding.destination.is_queue and binding.destination.name in host.queues.by_name:
            host.queues.need(binding.destination.name, connection)
        host.exchanges.change(host.state.topology.unbind(binding))
        await host.home.safe()

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
        """Declare a queue; ``connection`` owns it if it is exclusive."""
        host = await self._driver.ensure(namespace)
        if keeps_failures:
            settings = await self._with_dead_letters(host, name, settings)
        shard = self._driver.hosts.shard_of(QueueName(namespace, name))
        declared, effects = shard.shard.on_declare(
            QueueName(namespace, name),
            settings,
            shard.now_ms(),
            connection=connection,
            policy=policy,
        )
        host.queues.add(name, shard, declared.queue)
        if declared.is_new:
            _, _, queue = host.queues.need(name, connection)
            host.begin(queue, effects)
        has_facts = bool(effects.facts)
        shard.carry_out(effects)
        if has_facts:
            await shard.safe()
        else:
            shard.live.check_fresh()  # declaring the dead letter queue may have taken a while
        return QueueStatus(
            name=name,
            messages=declared.messages,
            consumers=declared.consumers,
            is_new=declared.is_new,
        )

    async def _with_dead_letters(
        self, host: VirtualHost, name: str, settings: QueueSettings
    ) -> QueueSettings:
        """The settings with a dead letter queue for messages that exceed the delivery limit."""
        known = host.queues.by_name.get(name)
        if known is not None:
            current = known[0].live.shard.queues.entries[known[1]].settings
            if settings == NATIVE and name.endswith(DEAD_SUFFIX):
                # No settings were requested: consumers of dead letters accept the queue as it is.
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
        await self.declare_queue(host.name, dead, QueueSettings(), policy=OnDifference.IGNORE)
        return replace(settings, dead_letter_exchange=DEFAULT_EXCHANGE, dead_letter_key=dead)

    def status(
        self, namespace: str, name: str, *, connection: str = "", is_use: bool = False
    ) -> QueueStatus:
        """The status of an existing queue."""
        shard, number, queue = self._need(namespace, name, connection)
        if is_use:
            queue.consumer_registry.used(shard.now_ms())
            shard.take(number, QueueEffects())
        return QueueStatus(
            name=name,
            messages=queue.body.ready_count,
            consumers=len(queue.consumer_registry),
            reports_failures=queue.body.settings.reports_failures,
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
        """Delete a queue; returns how many messages were ready."""
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
        await self._driver.hosts.home_of(namespace).safe()
        return messages

    async def purge_queue(self, namespace: str, name: str, *, connection: str = "") -> int:
        """Drop all messages that are not in delivery; returns how many."""
        shard, number, queue = self._need(namespace, name, connection)
        effects = shard.take(number, queue.on_purged(shard.now_ms()))
        messages = effects.count
        await shard.safe()
        return messages

    def connection_gone(self, connection: str) -> None:
        """Delete the exclusive queues of an ended connection."""
        for shard in self._driver.shards:
            effects = shard.shard.on_connection_gone(connection, shard.now_ms())
            if effects.notices or effects.facts:
                shard.carry_out(effects)

    # Messages

    def publisher(
        self, namespace: str, settled: OnSettled, flow: OnFlow | None = None
    ) -> QueuePublisher:
        """A new publisher."""
        return self._driver.hosts.publisher(namespace, settled, flow)

    def consume(
        self, namespace: str, queue: str, request: ConsumeRequest, deliver: Deliver, ended: Ended
    ) -> QueueSubscription:
        """Subscribe to a queue."""
        shard, number, found = self._need(namespace, queue, request.connection)
        consumer = Consumer(
            f"{request.name}#{next(self._holders)}",
            request.window,
            priority=request.priority,
            no_ack=request.no_ack,
            shared=request.shared,
        )
        subscription = QueueSubscription(shard, number, consumer, deliver, ended)
        effects = found.on_consume(
            consumer,
            shard.now_ms(),
            is_exclusive=request.is_exclusive,
            subscriber=request.subscriber,
        )
        shard.deliveries.subscribe(subscription)
        if request.shared is not None:
            self._driver.windows.share(subscription)
        shard.take(number, effects)
        return subscription

    async def get(
        self, namespace: str, queue: str, *, connection: str = "", no_ack: bool = False
    ) -> tuple[Delivery | None, int]:
        """Take one message, if one is ready; also returns how many are left."""
        shard, number, found = self._need(namespace, queue, connection)
        holder = DeliveryHolder(shard, number, f"get#{next(self._holders)}")
        delivery = holder.get(no_ack=no_ack)
        return delivery, found.body.ready_count

    def _need(
        self, namespace: str, name: str, connection: str
    ) -> tuple[QueueShardDriver, int, Queue]:
        host = self._driver.hosts.find(namespace)
        self._driver.hosts.check_fresh()
        if host is None:
            raise InvalidRequest(ErrorCode.UNKNOWN_QUEUE, f"no queue '{name}'", subject=name)
        found = host.queues.need(name, connection)
        # Apply pending settlements first: they wait for the end of this event loop iteration.
        found[0].settle_all()
        return found

    # Topics of exchanges

    async def _take_topic(self, host: VirtualHost, exchange: str, *, is_shared: bool) -> None:
        """Create or take over the topic that stores the messages of an exchange."""
        if exchange == DEFAULT_EXCHANGE or exchange in host.state.topics:
            return
        topics = self._driver.topics
        topic = topic_for(host.name, exchange)
        if topics.writers(topic) and not is_shared:
            raise InvalidRequest(
                ErrorCode.RESOURCE_LOCKED,
                f"topic '{topic}' exists and is not an exchange",
                subject=exchange,
                remedy="declare the exchange as shared, or choose another name",
            )
        is_shared = bool(topics.writers(topic))
        try:
            await topics.ensure(_exchange_topic(topic))
        except InvalidRequest as error:
            # A topic whose name differs only in '.' and '_' already exists.
            if error.code is not ErrorCode.INVALID_TOPIC_NAME:
                raise
            topic = encoded_topic(host.name, exchange)
            await topics.ensure(_exchange_topic(topic))
        if exchange not in host.state.topics:
            host.exchanges.record(TopicTaken(exchange, topic, is_shared))
        host.exchanges.prepare(topics.writers(topic))
        await host.home.safe()

    def _open(self, host: VirtualHost, exchange: str) -> None:
        """Serve an exchange whose topic exists."""
        if exchange in host.exchanges.streams:
            host.exchanges.note_exchange(exchange)
            return
        taken = host.state.topics[exchange]
        writers = self._driver.topics.writers(taken.topic)
        host.exchanges.prepare(writers)
        host.exchanges.open_exchange(exchange, writers)


def _exchange_topic(name: str) -> TopicRequirement:
    return TopicRequirement(name, EXCHANGE_PARTITIONS, EXCHANGE_CONFIGS, is_internal=False)
