"""All virtual hosts by name, their shards, and their publishers."""

from collections.abc import Iterator
from weakref import WeakSet

from mainstem.coordination.shards.partitioning import partition_for
from mainstem.model.errors import MainstemError
from mainstem.queues.admission.watermarks import Pressure
from mainstem.queues.counts import QueueCounts
from mainstem.queues.drivers.virtual_host_driver import VirtualHost
from mainstem.queues.publishing.exchange_stream_driver import ExchangeStream
from mainstem.queues.publishing.publisher_driver import OnFlow, OnSettled, QueuePublisher
from mainstem.queues.settings import QueueName
from mainstem.queues.shards.shard_driver import QueueShardDriver


class VirtualHosts:
    """Finds virtual hosts and shards, and forwards events of queues.

    ``refusal`` is the reason why queues are not served, if they are not; ``is_slow``: publishers
    should wait, because memory for queues is short.
    """

    def __init__(self, counts: QueueCounts) -> None:
        self.counts = counts
        self.shards: list[QueueShardDriver] = []
        self.by_name: dict[str, VirtualHost] = {}
        self.refusal: MainstemError | None = None
        self.is_slow = False
        self._publishers: WeakSet[QueuePublisher] = WeakSet()

    @property
    def lapse(self) -> MainstemError | None:
        """Why another node may serve queues by now; None while this node's lease is valid."""
        # All streams of queues have the same writer, whose lease is that of the node.
        return self.shards[0].live.lapse if self.shards else None

    def check_fresh(self) -> None:
        """Refuse to answer from memory alone if another node may have newer state.

        Raises:
            Unavailable: the lease of this node has ended.
        """
        lapse = self.lapse
        if lapse is not None:
            raise lapse

    def forget(self) -> None:
        """Reset before a reload."""
        self.shards = []
        self.by_name = {}

    def find(self, namespace: str) -> VirtualHost | None:
        """A virtual host; None if nothing was declared in it.

        Raises:
            Unavailable: queues are not served now.
        """
        if self.refusal is not None:
            raise self.refusal
        return self.by_name.get(namespace)

    def home_of(self, namespace: str) -> QueueShardDriver:
        """The shard that stores the topology of a virtual host."""
        return self.shards[partition_for(namespace, len(self.shards))]

    def shard_of(self, name: QueueName) -> QueueShardDriver:
        """The shard that a queue belongs to."""
        key = f"{name.namespace}\0{name.name}"
        return self.shards[partition_for(key, len(self.shards))]

    def all_streams(self) -> Iterator[ExchangeStream]:
        """Every stream of every exchange."""
        return (each for host in self.by_name.values() for each in host.exchanges.all_streams())

    def publisher(
        self,
        namespace: str,
        settled: OnSettled,
        flow: OnFlow | None = None,
        *,
        is_forced: bool = False,
    ) -> QueuePublisher:
        """Create a publisher."""
        publisher = QueuePublisher(self, namespace, settled, flow, is_forced=is_forced)
        if flow is not None:
            self._publishers.add(publisher)
        return publisher

    def has_queue(self, namespace: str, name: str) -> bool:
        """Whether a queue exists."""
        host = self.by_name.get(namespace)
        return host is not None and name in host.queues.by_name

    def queue_gone(self, name: QueueName) -> None:
        """Remove a deleted queue."""
        host = self.by_name.get(name.namespace)
        if host is not None:
            host.remove_queue(name.name)

    def admission_changed(self, name: QueueName, *, is_open: bool) -> None:
        """Notify routers that a queue accepts messages, or no longer does."""
        self.by_name[name.namespace].admission_changed(name.name, is_open=is_open)

    def pressure_changed(self) -> None:
        """Notify publishers of changed memory pressure."""
        level = max((shard.shard.pressure for shard in self.shards), default=Pressure.ACCEPT)
        for host in self.by_name.values():
            host.exchanges.on_pressure(level)
        is_slow = level >= Pressure.SLOW
        if is_slow is not self.is_slow:
            self.is_slow = is_slow
            for publisher in list(self._publishers):
                publisher.on_pressure(is_slow=is_slow)
