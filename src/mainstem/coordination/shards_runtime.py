"""The shards of this node: found by group, made at first use, loaded at start, swept now and then.

The internal topic is made when something is first to be stored. At start its shards load in the
background; requests are refused with ``COORDINATOR_LOADING`` until theirs is loaded.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence

from mainstem.coordination.group_shard import GroupShard
from mainstem.coordination.partitions import OFFSETS_TOPIC, partition_for
from mainstem.coordination.records import Fact
from mainstem.coordination.settings import GroupSettings
from mainstem.coordination.shard import InternalStream
from mainstem.coordination.shard_runtime import LiveShard, as_coordinator_error
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.model.limits import GROUPS_MAX

_log = logging.getLogger(__name__)


class InternalTopic:
    """How the coordinator reaches the topic that keeps its shards.

    Args:
        ensure: creates the topic if it is not there.
        open_stream: the stream of one of its partitions.
        partition_count: how many partitions the topic of that name has; 0 without such a topic.
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


class Shards:
    """All shards of this node."""

    def __init__(
        self,
        settings: GroupSettings,
        topic: InternalTopic,
        clock: Clock,
        new_id: Callable[[], str],
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._clock = clock
        self._new_id = new_id
        self._loaded: Callable[[LiveShard], None] = _unheard
        self._shards: dict[int, LiveShard] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ensuring: asyncio.Task[None] | None = None
        self._is_stopped = False

    def __iter__(self) -> Iterator[LiveShard]:
        return iter(self._shards.values())

    def start(self, loaded: Callable[[LiveShard], None]) -> None:
        """Begin to load what is stored; each shard that begins to serve is told to ``loaded``."""
        self._loaded = loaded
        count = self._topic.partition_count(OFFSETS_TOPIC)
        self._spawn(self._load([self._make(partition) for partition in range(count)]))
        self._spawn(self._sweep_for_ever())

    def stop(self) -> None:
        """Refuse everything from now on."""
        self._is_stopped = True
        for task in self._tasks:
            task.cancel()

    def partition_of(self, group_id: str) -> int:
        """The partition that a group is, or will be, kept in."""
        count = len(self._shards) or self._topic.partition_count(OFFSETS_TOPIC)
        return partition_for(group_id, count or self._settings.offsets_partitions)

    def all(self) -> Sequence[LiveShard]:
        """Every shard, all of them ready to serve."""
        if self._is_stopped:
            raise stopping()
        for live in self:
            if live.refusal is not None:
                raise live.refusal
        return list(self)

    def find(self, group_id: str) -> LiveShard | None:
        """The shard of a group, ready to serve; None as long as nothing was ever stored."""
        if self._is_stopped:
            raise stopping()
        live = self._shards.get(self.partition_of(group_id))
        if live is not None and live.refusal is not None:
            raise live.refusal
        return live

    async def find_to_write(self, group_id: str) -> LiveShard:
        """The shard of a group, created if need be; refused when there are too many groups."""
        live = self.find(group_id)
        while live is None:
            if self._ensuring is None or self._ensuring.done():
                self._ensuring = asyncio.get_running_loop().create_task(self._ensure())
            # One creation serves all who wait for it, also when one of them gives up.
            try:
                await asyncio.shield(self._ensuring)
            except MainstemError as error:
                raise as_coordinator_error(error) from error
            live = self.find(group_id)
        if live.shard.groups.get(group_id) is None:
            count = sum(len(each.shard.groups) for each in self)
            if count >= GROUPS_MAX:
                raise Unavailable(
                    ErrorCode.COORDINATOR_UNAVAILABLE,
                    f"there are {count} groups, no more are taken",
                    subject=group_id,
                )
        return live

    def store_or_warn(self, live: LiveShard, facts: Sequence[Fact]) -> None:
        """Store what nobody waits for: memory is right already, or a later sweep tries again."""
        try:
            live.store(facts, self._clock.wall_ms())
        except MainstemError as error:
            _log.warning(
                "%d facts of groups in partition %d cannot be stored now: %s",
                len(facts),
                live.partition,
                error,
            )

    def topic_deleted(self, topic: str) -> None:
        """Forget the positions in a topic that is gone."""
        for live in self:
            if live.is_ready:
                self.store_or_warn(live, live.shard.offsets.delete_topic(topic))

    def sweep(self, live: LiveShard) -> None:
        """Forget what has expired, and positions in topics that no longer exist."""
        if not live.is_ready:
            return
        for topic in live.shard.offsets.topics():
            if not self._topic.partition_count(topic):
                self.store_or_warn(live, live.shard.offsets.delete_topic(topic))
        self.store_or_warn(live, live.shard.expire(self._clock.wall_ms()))

    async def _ensure(self) -> None:
        await self._topic.ensure()
        count = self._topic.partition_count(OFFSETS_TOPIC)
        assert count, "the internal topic exists after it was created"
        # Whatever somebody may have put there by hand is loaded too.
        await self._load([self._make(p) for p in range(count) if p not in self._shards])

    def _make(self, partition: int) -> LiveShard:
        shard = GroupShard(self._settings, self._new_id)
        live = LiveShard(shard, self._topic.open_stream(partition), partition)
        self._shards[partition] = live
        return live

    async def _load(self, shards: Sequence[LiveShard]) -> None:
        for live in shards:
            await live.load()
            if live.is_ready:
                self._loaded(live)

    async def _sweep_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._settings.offsets_retention_check_ms / 1000)
            for live in list(self):
                self.sweep(live)
                await asyncio.sleep(0)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Our bug: the node's handler decides what becomes of a node without its coordinator.
            task.get_loop().call_exception_handler(
                {"message": "group coordination failed", "exception": error, "task": task}
            )


def _unheard(_: LiveShard) -> None:
    raise AssertionError("shards are loaded once the coordinator is started")


def stopping() -> Unavailable:
    """The refusal of a node on its way down: clients look for the coordinator again."""
    return Unavailable(ErrorCode.COORDINATOR_UNAVAILABLE, "the node is stopping")
