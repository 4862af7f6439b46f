"""Who talks to whom in the room of queues: shards, namespaces, streams, dead letters.

A shard knows its queues and a namespace its exchanges; here they find each other. All that is
published in one turn of the loop is appended by one ``flush``.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from weakref import WeakSet

from mainstem.coordination.partitions import partition_for
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.model.ids import StreamId
from mainstem.model.message import Message
from mainstem.queues.bodies_runtime import Bodies, Doors
from mainstem.queues.burst_runtime import Bursts
from mainstem.queues.counts import QueueCounts
from mainstem.queues.dead_letter_runtime import Burials
from mainstem.queues.effects import DeadLetter
from mainstem.queues.exchange import DEFAULT_EXCHANGE
from mainstem.queues.publisher_runtime import LivePublisher, OnFlow, OnSettled
from mainstem.queues.queue_shard_runtime import QueueShardRuntime
from mainstem.queues.settings import QueueName
from mainstem.queues.space_runtime import Space
from mainstem.queues.steady_clock import SteadyClock
from mainstem.queues.subscription_runtime import LiveSubscription
from mainstem.queues.vocabulary import Routing
from mainstem.queues.watermarks import Pressure
from mainstem.queues.window import Window


class QueuesSwitchboard(ABC):
    """See the module. ``refusal`` says why nothing is served, if nothing is."""

    def __init__(self, doors: Doors, clock: Clock, flush: Callable[[], None]) -> None:
        self.clock = SteadyClock(clock)
        self.bodies = Bodies(doors)
        self.counts = QueueCounts()
        self.shards: list[QueueShardRuntime] = []
        self.spaces: dict[str, Space] = {}
        self.refusal: MainstemError | None = None
        # Whether publishers should wait: memory for queues runs short.
        self.is_slow = False
        self._publishers: WeakSet[LivePublisher] = WeakSet()
        self.burials = Burials(self)
        self._write = flush
        self._exchanges: dict[StreamId, str] = {}
        self._dirty: dict[Bursts, None] = {}
        self._flushing: asyncio.Handle | None = None
        self._sharing: dict[int, dict[LiveSubscription, None]] = {}

    @abstractmethod
    def shard_failed(self, shard: QueueShardRuntime, error: MainstemError) -> None:
        """Facts could not be stored."""

    def forget(self) -> None:
        """Everything will be loaded anew."""
        self._dirty.clear()
        self._sharing.clear()
        self.shards = []
        self.spaces = {}
        self.burials.forget()

    def find(self, namespace: str) -> Space | None:
        """A namespace in service; None where nothing was ever declared there.

        Raises:
            Unavailable: queues are not served now.
        """
        if self.refusal is not None:
            raise self.refusal
        return self.spaces.get(namespace)

    def publisher(
        self,
        namespace: str,
        settled: OnSettled,
        flow: OnFlow | None = None,
        *,
        is_forced: bool = False,
    ) -> LivePublisher:
        """Somebody wants to publish."""
        publisher = LivePublisher(self, namespace, settled, flow, is_forced=is_forced)
        if flow is not None:
            self._publishers.add(publisher)
        return publisher

    def space(self, namespace: str) -> Space:
        """A namespace in service.

        Raises:
            Unavailable: nothing is loaded, or nobody ever declared anything.
        """
        known = self.spaces.get(namespace)
        if known is None:
            if not self.shards:
                raise Unavailable(ErrorCode.COORDINATOR_LOADING, subject=namespace)
            home = self.shards[partition_for(namespace, len(self.shards))]
            known = Space(namespace, home.live.shard.space(namespace), home, self)
            self.spaces[namespace] = known
        return known

    def shard_of(self, name: QueueName) -> QueueShardRuntime:
        """The shard that a queue belongs to."""
        key = f"{name.namespace}\0{name.name}"
        return self.shards[partition_for(key, len(self.shards))]

    def share(self, subscription: LiveSubscription) -> None:
        """A consumer has a window that it shares with others."""
        self._sharing.setdefault(id(subscription.consumer.shared), {})[subscription] = None

    # What shards and namespaces ask

    def exchange_of(self, stream: StreamId) -> str:
        """The exchange that a stream belongs to, or did."""
        return self._exchanges.get(stream, DEFAULT_EXCHANGE)

    def is_queue_stream(self, stream: StreamId) -> bool:
        """Whether queues may have messages in a stream."""
        return stream in self._exchanges

    def opened(self, stream: StreamId, exchange: str) -> None:
        """A stream belongs to an exchange from now on."""
        self._exchanges[stream] = exchange

    def queue_gone(self, name: QueueName) -> None:
        """A queue was deleted."""
        space = self.spaces.get(name.namespace)
        if space is not None:
            space.remove_queue(name.name)

    def admission_changed(self, name: QueueName, *, is_open: bool) -> None:
        """A queue takes messages, or takes none."""
        self.space(name.namespace).admission_changed(name.name, is_open=is_open)

    def bury(self, shard: QueueShardRuntime, letters: Sequence[DeadLetter]) -> None:
        """Append dead letters, then tell the shard."""
        self.burials.bury(shard, letters)

    def refused(self, space: Space, queue: str, message: Message, routing: Routing) -> None:
        """A full queue wants what it refuses to be a dead letter."""
        self.burials.refused(space, queue, message, routing)

    def pressure_changed(self) -> None:
        """Publishers are to be treated otherwise."""
        level = max((shard.shard.pressure for shard in self.shards), default=Pressure.ACCEPT)
        for space in self.spaces.values():
            space.on_pressure(level)
        is_slow = level >= Pressure.SLOW
        if is_slow is not self.is_slow:
            self.is_slow = is_slow
            for publisher in list(self._publishers):
                publisher.on_pressure(is_slow=is_slow)

    def shared_changed(self, shared: Window) -> None:
        """The window of a channel may have room: its consumers take turns, queue by queue."""
        sharing = self._sharing.get(id(shared), {})
        for subscription in list(sharing):
            if not subscription.is_open:
                del sharing[subscription]
                continue
            before = shared.unsettled
            subscription.shard.window_changed(subscription)
            if shared.unsettled > before:
                # It got something: the others come first the next time.
                del sharing[subscription]
                sharing[subscription] = None
        if not sharing:
            self._sharing.pop(id(shared), None)

    def partition_for(self, key: str) -> int:
        """A number for a key; whoever asks takes it modulo its partitions."""
        return partition_for(key, 2**31 - 1)

    def flush_soon(self, stream: Bursts) -> None:
        """A stream has something to append at the end of this turn of the loop."""
        self._dirty[stream] = None
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().call_soon(self.flush)

    def flush(self) -> None:
        """Append all that was published."""
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        if not self._dirty:
            return
        dirty, self._dirty = self._dirty, {}
        staged = [(stream, stream.stage()) for stream in dirty]
        self._write()
        for stream, bursts in staged:
            stream.check(bursts)
