"""The shards of this node: found by key, loaded when this node becomes writer, swept periodically.

Keys (group ids, transactional ids) are partitioned among the shards of a topic. The internal topic
is created when something is first stored. A shard is served by the writer of its stream: it loads
in the background when this node becomes the writer, requests are refused with
``COORDINATOR_LOADING`` until then, and it is given up when another node becomes the writer.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, ClassVar, Generic

from mainstem.coordination.shards.background_driver import BackgroundTasks
from mainstem.coordination.shards.partitioning import partition_for
from mainstem.coordination.shards.persistence_driver import (
    FactT,
    LiveShard,
    ShardT,
    as_coordinator_error,
)
from mainstem.coordination.shards.state_machine import InternalStream
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError, Unavailable

_log = logging.getLogger(__name__)


class InternalTopic:
    """Access to the internal topic that stores the shards.

    Args:
        ensure: creates the topic if it does not exist.
        open_stream: returns the stream of a partition; raises if another node writes it.
        partition_count: returns the partition count of a topic; 0 if it does not exist.
    """

    def __init__(
        self,
        ensure: Callable[[], Awaitable[None]],
        open_stream: Callable[[int], InternalStream],
        partition_count: Callable[[str], int],
    ) -> None:
        self.ensure = ensure
        self.open_stream = open_stream
        self.partition_count = partition_count


class ShardRegistry(ABC, Generic[ShardT, FactT]):
    """All shards of one internal topic on this node; subclasses define their state.

    Args:
        topic: the internal topic in which facts are stored.
        clock: source of time.
        partitions: the partition count of the topic if it has to be created.
        sweep_ms: how often every shard is swept.
    """

    topic_name: ClassVar[str]

    def __init__(
        self, topic: InternalTopic, clock: Clock, *, partitions: int, sweep_ms: int
    ) -> None:
        self._topic = topic
        self._clock = clock
        self._partitions = partitions
        self._sweep_ms = sweep_ms
        self._loaded: Callable[[LiveShard[ShardT, FactT]], None] = _unheard
        self._given_up: Callable[[LiveShard[ShardT, FactT]], None] = _unheard
        self._loading: dict[int, asyncio.Task[None]] = {}
        self._shards: dict[int, LiveShard[ShardT, FactT]] = {}
        self._background = BackgroundTasks(self.topic_name)
        self.run = self._background.run  # runs work in the background until the coordinator stops
        self._ensuring: asyncio.Task[None] | None = None
        self._is_stopped = False

    @abstractmethod
    def make(self, partition: int) -> LiveShard[ShardT, FactT]:
        """Make an empty shard."""

    @abstractmethod
    def check_capacity(self, live: LiveShard[ShardT, FactT], key: str) -> None:
        """Refuse a new key beyond the limit."""

    @abstractmethod
    def sweep(self, live: LiveShard[ShardT, FactT]) -> None:
        """Delete expired state."""

    def __iter__(self) -> Iterator[LiveShard[ShardT, FactT]]:
        return iter(self._shards.values())

    def start(
        self,
        loaded: Callable[[LiveShard[ShardT, FactT]], None],
        given_up: Callable[[LiveShard[ShardT, FactT]], None],
    ) -> None:
        """Start loading the shards.

        ``loaded`` is called with each shard that starts serving, ``given_up`` with each that stops.
        """
        self._loaded, self._given_up = loaded, given_up
        self._begin()
        self.run(_sweep_for_ever(self, self._sweep_ms))

    def opened(self, partition: int) -> None:
        """Load a shard: this node became the writer of its stream, possibly in a new epoch."""
        live = self._shards.get(partition)
        if live is not None and live.stream is self._topic.open_stream(partition):
            return
        self.closed(partition)
        if not self._is_stopped:
            self._begin(partition)

    def closed(self, partition: int) -> None:
        """Give up a shard: this node no longer writes its stream."""
        self._loading.pop(partition, None)
        live = self._shards.pop(partition, None)
        if live is not None:
            live.retire(not_coordinator_error(self.topic_name, partition))
            self._given_up(live)

    def stop(self) -> None:
        """Refuse all further requests."""
        self._is_stopped = True
        self._background.stop()

    def is_loaded(self) -> bool:
        """Whether no shard is still loading."""
        return all(
            live.refusal is None or live.refusal.code is not ErrorCode.COORDINATOR_LOADING
            for live in self
        )

    def partition_of(self, key: str) -> int:
        """The partition in which a key is or would be stored."""
        count = self._topic.partition_count(self.topic_name)
        return partition_for(key, count or self._partitions)

    def in_partition(self, partition: int) -> LiveShard[ShardT, FactT]:
        """The shard of a partition, ready to serve."""
        if self._is_stopped:
            raise stopping()
        if not 0 <= partition < self._topic.partition_count(self.topic_name):
            raise InvalidRequest(ErrorCode.UNKNOWN_TOPIC, subject=f"{self.topic_name}-{partition}")
        live = self._shards.get(partition)
        if live is None:
            raise not_coordinator_error(self.topic_name, partition)
        if live.refusal is not None:
            raise live.refusal
        return live

    def all(self) -> Sequence[LiveShard[ShardT, FactT]]:
        """Every shard of this node; raises unless all can serve and have current state."""
        if self._is_stopped:
            raise stopping()
        for live in self:
            if live.refusal is not None:
                raise live.refusal
            live.check_fresh()
        return list(self)

    def find(self, key: str) -> LiveShard[ShardT, FactT] | None:
        """The shard of a key, ready to serve; None while the internal topic does not exist."""
        if self._is_stopped:
            raise stopping()
        partition = self.partition_of(key)
        live = self._shards.get(partition)
        if live is None:
            is_made = self._ensuring is None or self._ensuring.done()
            if is_made and self._topic.partition_count(self.topic_name):
                raise not_coordinator_error(self.topic_name, partition)
            return None
        if live.refusal is not None:
            raise live.refusal
        return live

    def serving(self, key: str) -> LiveShard[ShardT, FactT] | None:
        """The shard of a key if this node serves it."""
        live = self._shards.get(self.partition_of(key))
        return live if live is not None and live.is_ready and not self._is_stopped else None

    async def find_to_write(self, key: str) -> LiveShard[ShardT, FactT]:
        """The shard of a key; creates the topic if needed and raises beyond the limit of keys."""
        live = self.find(key)
        while live is None:
            if self._ensuring is None or self._ensuring.done():
                self._ensuring = asyncio.get_running_loop().create_task(self._ensure())
            # All callers share one creation, which goes on when one of them is cancelled.
            try:
                await asyncio.shield(self._ensuring)
            except MainstemError as error:
                raise as_coordinator_error(error) from error
            live = self.find(key)
        self.check_capacity(live, key)
        return live

    def store_or_warn(self, live: LiveShard[ShardT, FactT], facts: Sequence[FactT]) -> None:
        """Store facts that no request waits for; on failure a later sweep tries again."""
        try:
            live.store(facts, self._clock.wall_ms())
        except MainstemError as error:
            _log.warning(
                "%d facts in partition %d of %s could not be stored: %s",
                len(facts),
                live.partition,
                self.topic_name,
                error,
            )

    async def _ensure(self) -> None:
        await self._topic.ensure()
        if not self._topic.partition_count(self.topic_name):
            raise Unavailable(  # another node created it; the catalogue here lags
                ErrorCode.COORDINATOR_UNAVAILABLE,
                "the topic is not in this node's catalogue yet",
                subject=self.topic_name,
            )
        # Records that an administrator wrote to the topic are loaded too.
        self._begin()
        await asyncio.gather(*self._loading.values(), return_exceptions=True)

    def _begin(self, partition: int | None = None) -> None:
        """Load the shard of a partition, or all missing ones, that this node writes."""
        count = self._topic.partition_count(self.topic_name)
        for number in range(count) if partition is None else (partition,):
            if number in self._shards:
                continue
            try:
                live = self.make(number)
            except MainstemError as error:  # another node writes it
                _log.debug("%s-%d is not coordinated here: %s", self.topic_name, number, error)
                continue
            self._shards[number] = live
            # Each in its own task: one that waits for its files does not delay the others.
            self._loading[number] = self.run(self._load(live))

    async def _load(self, live: LiveShard[ShardT, FactT]) -> None:
        await live.load()
        if self._shards.get(live.partition) is live:
            self._loading.pop(live.partition, None)
            if live.is_ready:
                self._loaded(live)


async def _sweep_for_ever(shards: ShardRegistry[ShardT, FactT], pause_ms: int) -> None:
    while True:
        await asyncio.sleep(pause_ms / 1000)
        for live in list(shards):
            shards.sweep(live)
            await asyncio.sleep(0)


def _unheard(_: LiveShard[Any, Any]) -> None:
    raise AssertionError("shards are loaded once the coordinator is started")


def not_coordinator_error(topic: str, partition: int) -> Unavailable:
    """The error if another node coordinates: clients look up the coordinator again."""
    return Unavailable(
        ErrorCode.NOT_COORDINATOR, "another node is the coordinator", subject=f"{topic}-{partition}"
    )


def stopping() -> Unavailable:
    """The error of a node that is stopping: clients look up the coordinator again."""
    return Unavailable(ErrorCode.COORDINATOR_UNAVAILABLE, "the node is stopping")
