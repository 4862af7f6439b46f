"""All queues of this node: loaded from their internal topic, served, kept, and tidied up.

    __queues        facts, in shards: a queue belongs to the shard that its name falls on, what is
                    known of a namespace to the shard that the namespace falls on
    __queue_data    bodies of what is published to queues by name
    topics          bodies of what is published to exchanges, one topic each

Nothing of this is there before the first declaration. In a cluster one node serves all queues: the
one that writes all these streams, which are placed alike so that they move together; all others say
who it is. Where facts cannot be stored, or a stream is taken by another node, everything is let go
and loaded anew: queues that are not durable are lost then, consumers are told.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple

from mainstem.coordination.shard_runtime import LiveShard
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.model.ids import StreamId
from mainstem.model.limits import BATCH_BYTES_MAX, MIB
from mainstem.model.topic_name import QUEUES_TOPIC
from mainstem.queues.bodies_runtime import Doors
from mainstem.queues.exchange import DEFAULT_EXCHANGE
from mainstem.queues.exchange_topics import data_topic
from mainstem.queues.fact_codec import SHARD_CODEC
from mainstem.queues.queue_shard_runtime import QueueShardRuntime
from mainstem.queues.queues_switchboard_runtime import QueuesSwitchboard
from mainstem.queues.shard_book import ShardBook
from mainstem.queues.space_runtime import Space
from mainstem.queues.watermarks import SharedMemory
from mainstem.streams.writer_driver import StreamWriter

QUEUE_PARTITIONS = 8
DATA_PARTITIONS = 4
MEMORY_BYTES_MAX = 1024 * MIB
RELOAD_S = 0.5
RELOAD_S_MAX = 30.0

QUEUES_CONFIGS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": "16842752",
}
# Bodies go once no queue needs them; retention is looked at when a segment is full.
DATA_CONFIGS = {
    "cleanup.policy": "delete",
    "retention.ms": "60000",
    "segment.bytes": "67108864",
    # How large a message may be is for the protocols to say.
    "max.message.bytes": str(BATCH_BYTES_MAX),
}

_log = logging.getLogger(__name__)


class TopicWish(NamedTuple):
    """A topic that has to be there."""

    name: str
    partitions: int
    configs: Mapping[str, str]
    is_internal: bool


class TopicDesk(NamedTuple):
    """How queues reach topics.

    Args:
        ensure: creates a topic if it is not there.
        delete: takes a topic away.
        is_there: whether there is a topic of that name.
        doors: the streams of a topic; empty where there is none. Raises where another node writes.
        trim: (topic, partition, before): lets a stream start later.
        flush: writes all that is staged.
    """

    ensure: Callable[[TopicWish], Awaitable[None]]
    delete: Callable[[str], Awaitable[None]]
    is_there: Callable[[str], bool]
    doors: Callable[[str], Sequence[StreamWriter]]
    trim: Callable[[str, int, int], Awaitable[Any]]
    flush: Callable[[], None]


class QueuesRuntime(QueuesSwitchboard):
    """See the module."""

    def __init__(
        self,
        topics: TopicDesk,
        doors: Doors,
        clock: Clock,
        *,
        memory_bytes_max: int = MEMORY_BYTES_MAX,
    ) -> None:
        super().__init__(doors, clock, topics.flush)
        self.topics = topics
        self._memory_bytes_max = memory_bytes_max
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready = asyncio.Event()
        self._is_serving = False
        self._fact_streams: list[StreamId] = []
        self._retry = asyncio.Event()
        self._ensuring = asyncio.Lock()

    # Start and stop

    def start(self) -> None:
        """Begin to load what is stored, if anything ever was."""
        if self.topics.is_there(QUEUES_TOPIC):
            self.serve()
        else:
            self._ready.set()

    def serve(self) -> None:
        """Load what is stored, as soon as this node may, unless that is under way or done."""
        self._retry.set()
        if not self._is_serving:
            self._is_serving = True
            self._ready.clear()
            self.refusal = Unavailable(ErrorCode.COORDINATOR_LOADING, "queues are being loaded")
            self.run(self._serve(wait_s=0.0))

    async def ready(self) -> None:
        """Wait until what is stored is loaded."""
        await self._ready.wait()
        if self.refusal is not None:
            raise self.refusal

    def stream_opened(self, stream: StreamWriter) -> None:
        """This node writes a stream from now on: perhaps it may serve queues."""
        if not self.shards and stream.topic == QUEUES_TOPIC:
            self.serve()

    def stream_lost(self, stream: StreamId) -> None:
        """Another node writes a stream from now on, or it is gone."""
        needed = set(self._fact_streams) if self.shards else set()
        for space in self.spaces.values():
            needed |= {each.door.id for each in space.all_streams()}
        if stream in needed:
            self._fail(Unavailable(ErrorCode.NOT_COORDINATOR, "queues move to another node"))

    async def stop(self) -> None:
        """Keep what is known and serve nothing more."""
        for task in self._tasks:
            task.cancel()
        self.flush()
        for space in self.spaces.values():
            space.keep_cursors()
        for shard in self.shards:
            shard.run_turn()
        self._unload(Unavailable(ErrorCode.SHUTTING_DOWN, "the node is stopping"))

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Let work go on by itself until it ends or the node stops."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def ensure(self, namespace: str) -> Space:
        """The namespace, with all topics that it needs."""
        await self.ready()
        known = self.spaces.get(namespace)
        if known is not None and DEFAULT_EXCHANGE in known.streams:
            return known
        async with self._ensuring:
            if not self.shards:
                await self.topics.ensure(
                    TopicWish(QUEUES_TOPIC, QUEUE_PARTITIONS, QUEUES_CONFIGS, is_internal=True)
                )
                self.serve()
                await self.ready()
            space = self.space(namespace)
            if DEFAULT_EXCHANGE not in space.streams:
                topic = data_topic(namespace)
                await self.topics.ensure(
                    TopicWish(topic, DATA_PARTITIONS, DATA_CONFIGS, is_internal=True)
                )
                doors = self.topics.doors(topic)
                space.prepare(doors)
                await space.home.safe()
                space.open_exchange(DEFAULT_EXCHANGE, doors)
        return space

    # Loading

    def shard_failed(self, shard: QueueShardRuntime, error: MainstemError) -> None:
        """Facts could not be stored: the machines are ahead of their streams."""
        _log.error("shard %d of queues could not be stored: %s", shard.live.partition, error)
        self._fail(Unavailable(ErrorCode.COORDINATOR_UNAVAILABLE, str(error)))

    def _fail(self, error: MainstemError) -> None:
        if self.refusal is None:
            self._unload(error)
            # What could not be stored now will hardly be in the next moment.
            self.run(self._serve(wait_s=RELOAD_S))

    def _unload(self, error: MainstemError) -> None:
        """Serve nothing, for a reason, which is told to all who publish and consume."""
        self.refusal = error
        for shard in self.shards:
            shard.close(error)
        for space in self.spaces.values():
            for stream in space.all_streams():
                stream.close(error)
        self.forget()
        self._ready.set()

    async def _serve(self, wait_s: float) -> None:
        """Load what is stored; where that cannot be, again and again, and at once when told to."""
        self._retry.clear()
        while True:
            try:
                async with asyncio.timeout(wait_s):
                    await self._retry.wait()
                wait_s = 0.0
            except TimeoutError:
                pass
            self._retry.clear()
            try:
                await self._load()
            except MainstemError as error:
                self._unload(error)
                wait_s = min(2 * wait_s or RELOAD_S, RELOAD_S_MAX)
            else:
                return

    async def _load(self) -> None:
        lives = []
        doors = self.topics.doors(QUEUES_TOPIC)
        self._fact_streams = [door.id for door in doors]
        for door in doors:
            book = ShardBook(self._has_queue)
            live = LiveShard(book, SHARD_CODEC, door, door.id.partition)
            await live.load()
            if live.refusal is not None:
                raise live.refusal
            lives.append(live)
        memory = SharedMemory(self._memory_bytes_max)
        self.shards = [QueueShardRuntime(live, self, memory.share()) for live in lives]
        for shard in self.shards:
            shard.facts_since_snapshot = shard.live.written
            for name, queue in shard.shard:
                self.space(name.namespace).add_queue(name.name, shard, queue.body.id)
            for namespace in shard.live.shard.spaces:
                self.space(namespace)
        for space in self.spaces.values():
            self._open(space)
        for shard in self.shards:
            effects = shard.shard.on_recovered(self.clock.now_ms())
            letters, effects.dead_letters = effects.dead_letters, []
            shard.carry_out(effects)
            self.burials.recovered(shard, letters)
        for space in self.spaces.values():
            for stream in space.all_streams():
                stream.route_committed()
        self.refusal = None
        self._ready.set()

    def _open(self, space: Space) -> None:
        """Take a namespace up where it was left."""
        taken = {DEFAULT_EXCHANGE: data_topic(space.name)}
        taken |= {each.exchange: each.topic for each in space.book.topics.values()}
        for exchange, topic in taken.items():
            doors = self.topics.doors(topic)
            for door in doors:
                self.opened(door.id, exchange)
            if doors:
                space.prepare(doors)
                space.open_exchange(exchange, doors)
                if exchange not in space.book.topology.live:
                    space.retire_exchange(exchange)
        space.change(space.book.topology.restarted())

    def _has_queue(self, namespace: str, name: str) -> bool:
        space = self.spaces.get(namespace)
        return space is not None and name in space.queues

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Our bug: the node's handler decides what becomes of a node without its queues.
            task.get_loop().call_exception_handler(
                {"message": "queues failed", "exception": error, "task": task}
            )
