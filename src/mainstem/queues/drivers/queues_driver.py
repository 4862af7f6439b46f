"""All queues of this node: loaded from their internal topic, served, stored, and maintained.

    __queues        facts, in shards: a queue belongs to the shard that its name hashes to, the
                    state of a virtual host to the shard that the host's name hashes to
    __queue_data    bodies of messages published to queues by name
    topics          bodies of messages published to exchanges, one topic per exchange

These topics are created by the first declaration. In a cluster one node serves all queues: the
one that writes all these streams, which are placed alike so that they move together; other nodes
redirect to it. If facts cannot be stored, or another node takes over a stream, everything is
unloaded and loaded again: queues that are not durable are lost, and consumers are notified.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple

from mainstem.coordination.shards.persistence_driver import LiveShard
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.model.ids import StreamId
from mainstem.model.limits import BATCH_BYTES_MAX, MIB
from mainstem.model.topic_name import QUEUES_TOPIC
from mainstem.queues.admission.watermarks import SharedMemory
from mainstem.queues.context import QueuesContext
from mainstem.queues.counts import QueueCounts
from mainstem.queues.drivers.dead_letter_driver import DeadLetterer
from mainstem.queues.drivers.virtual_host_driver import VirtualHost
from mainstem.queues.drivers.virtual_hosts_driver import VirtualHosts
from mainstem.queues.publishing.publish_flush_driver import PublishFlusher
from mainstem.queues.routing.exchange import DEFAULT_EXCHANGE
from mainstem.queues.routing.exchange_topics import data_topic
from mainstem.queues.shards.shard_driver import QueueShardDriver, ShardContext
from mainstem.queues.shards.shared_window_driver import SharedWindows
from mainstem.queues.steady_clock import SteadyClock
from mainstem.queues.storage.fact_codec import SHARD_CODEC
from mainstem.queues.storage.message_body_driver import MessageBodies, PartitionLookup
from mainstem.queues.storage.shard_state import ShardState
from mainstem.streams.writer.stream_driver import StreamWriter

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
# Bodies are deleted once no queue needs them; retention is checked when a segment is full.
DATA_CONFIGS = {
    "cleanup.policy": "delete",
    "retention.ms": "60000",
    "segment.bytes": "67108864",
    # The protocols limit the size of messages.
    "max.message.bytes": str(BATCH_BYTES_MAX),
}

_log = logging.getLogger(__name__)


class TopicRequirement(NamedTuple):
    """A topic that has to exist."""

    name: str
    partitions: int
    configs: Mapping[str, str]
    is_internal: bool


class TopicAccess(NamedTuple):
    """Access of queues to topics.

    Args:
        ensure: creates a topic if it does not exist.
        delete: deletes a topic.
        is_there: whether a topic of that name exists.
        writers: the streams of a topic; empty if there is none. Raises if another node writes.
        trim: (topic, partition, before): deletes the records before an offset.
        flush: writes all that is staged.
    """

    ensure: Callable[[TopicRequirement], Awaitable[None]]
    delete: Callable[[str], Awaitable[None]]
    is_there: Callable[[str], bool]
    writers: Callable[[str], Sequence[StreamWriter]]
    trim: Callable[[str, int, int], Awaitable[Any]]
    flush: Callable[[], None]


class QueuesDriver:
    """Loads all queues of this node, serves and unloads them."""

    def __init__(
        self,
        topics: TopicAccess,
        writers: PartitionLookup,
        clock: Clock,
        *,
        memory_bytes_max: int = MEMORY_BYTES_MAX,
    ) -> None:
        self.topics = topics
        self.context = QueuesContext(SteadyClock(clock), MessageBodies(writers), QueueCounts())
        self.hosts = VirtualHosts(self.context.counts)
        self.windows = SharedWindows()
        self.dead_letters = DeadLetterer(self.context, self.hosts)
        self._flusher = PublishFlusher(topics.flush)
        self._memory_bytes_max = memory_bytes_max
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready = asyncio.Event()
        self._is_serving = False
        self._fact_streams: list[StreamId] = []
        self._retry = asyncio.Event()
        self._ensuring = asyncio.Lock()

    @property
    def shards(self) -> Sequence[QueueShardDriver]:
        """The loaded shards; empty while queues are not served."""
        return self.hosts.shards

    # Start and stop

    def start(self) -> None:
        """Start to load the stored queues, if there are any."""
        if self.topics.is_there(QUEUES_TOPIC):
            self.serve()
        else:
            self._ready.set()

    def serve(self) -> None:
        """Load the stored queues as soon as this node may, unless that is in progress or done."""
        self._retry.set()
        if not self._is_serving:
            self._is_serving = True
            self._ready.clear()
            self.hosts.refusal = Unavailable(
                ErrorCode.COORDINATOR_LOADING, "queues are being loaded"
            )
            self._run(self._serve(wait_s=0.0))

    async def ready(self) -> None:
        """Wait until the stored queues are loaded."""
        await self._ready.wait()
        if self.hosts.refusal is not None:
            raise self.hosts.refusal

    def stream_opened(self, stream: StreamWriter) -> None:
        """Load queues if this node has become the writer of their streams."""
        if not self.shards and stream.topic == QUEUES_TOPIC:
            self.serve()

    def stream_lost(self, stream: StreamId) -> None:
        """Unload queues if this node no longer writes one of their streams."""
        needed = set(self._fact_streams) if self.shards else set()
        needed |= {each.writer.id for each in self.hosts.all_streams()}
        if stream in needed:
            self._fail(Unavailable(ErrorCode.NOT_COORDINATOR, "queues are moving to another node"))

    async def stop(self) -> None:
        """Store the current state and stop."""
        for task in self._tasks:
            task.cancel()
        self._flusher.flush()
        for host in self.hosts.by_name.values():
            host.exchanges.keep_cursors()
        for shard in self.shards:
            shard.run_turn()
        self._unload(Unavailable(ErrorCode.SHUTTING_DOWN, "the node is stopping"))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task until it ends or the node stops."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def ensure(self, namespace: str) -> VirtualHost:
        """The virtual host, with all topics that it needs."""
        await self.ready()
        self.hosts.check_fresh()
        known = self.hosts.by_name.get(namespace)
        if known is not None and DEFAULT_EXCHANGE in known.exchanges.streams:
            return known
        async with self._ensuring:
            if not self.shards:
                await self.topics.ensure(
                    TopicRequirement(
                        QUEUES_TOPIC, QUEUE_PARTITIONS, QUEUES_CONFIGS, is_internal=True
                    )
                )
                self.serve()
                await self.ready()
            host = self._host(namespace)
            if DEFAULT_EXCHANGE not in host.exchanges.streams:
                topic = data_topic(namespace)
                await self.topics.ensure(
                    TopicRequirement(topic, DATA_PARTITIONS, DATA_CONFIGS, is_internal=True)
                )
                writers = self.topics.writers(topic)
                host.exchanges.prepare(writers)
                await host.home.safe()
                host.exchanges.open_exchange(DEFAULT_EXCHANGE, writers)
        return host

    # Loading

    def _shard_failed(self, shard: QueueShardDriver, error: MainstemError) -> None:
        """Reload after a failed write: the state machines are ahead of their streams."""
        _log.error("facts of queue shard %d could not be stored: %s", shard.live.partition, error)
        self._fail(Unavailable(ErrorCode.COORDINATOR_UNAVAILABLE, str(error)))

    def _fail(self, error: MainstemError) -> None:
        if self.hosts.refusal is None:
            self._unload(error)
            # A write that failed now would probably fail again immediately.
            self._run(self._serve(wait_s=RELOAD_S))

    def _unload(self, error: MainstemError) -> None:
        """Stop serving; all publishers and consumers get the error."""
        self.hosts.refusal = error
        for shard in self.shards:
            shard.close(error)
        for stream in self.hosts.all_streams():
            stream.close(error)
        for part in (self._flusher, self.windows, self.hosts, self.dead_letters):
            part.forget()
        self._ready.set()

    async def _serve(self, wait_s: float) -> None:
        """Load the stored queues; retries after failures, immediately if requested."""
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
        writers = self.topics.writers(QUEUES_TOPIC)
        self._fact_streams = [writer.id for writer in writers]
        for writer in writers:
            state = ShardState(self.hosts.has_queue)
            live = LiveShard(state, SHARD_CODEC, writer, writer.id.partition)
            await live.load()
            if live.refusal is not None:
                raise live.refusal
            lives.append(live)
        memory = SharedMemory(self._memory_bytes_max)
        context = ShardContext(
            self.context,
            self.hosts,
            self.windows,
            self.dead_letters.dead_letter,
            self._shard_failed,
        )
        self.hosts.shards = [QueueShardDriver(live, context, memory.share()) for live in lives]
        for shard in self.shards:
            shard.facts_since_snapshot = shard.live.written
            for name, queue in shard.shard:
                self._host(name.namespace).queues.add(name.name, shard, queue.body.id)
            for namespace in shard.live.shard.virtual_hosts:
                self._host(namespace)
        for host in self.hosts.by_name.values():
            self._open(host)
        for shard in self.shards:
            effects = shard.shard.on_recovered(shard.now_ms())
            letters, effects.dead_letters = effects.dead_letters, []
            shard.carry_out(effects)
            self.dead_letters.recovered(shard, letters)
        for stream in self.hosts.all_streams():
            stream.route_committed()
        self.hosts.refusal = None
        self._ready.set()

    def _host(self, namespace: str) -> VirtualHost:
        """A loaded virtual host.

        Raises:
            Unavailable: no queues are loaded.
        """
        known = self.hosts.by_name.get(namespace)
        if known is None:
            if not self.shards:
                raise Unavailable(ErrorCode.COORDINATOR_LOADING, subject=namespace)
            home = self.hosts.home_of(namespace)
            known = VirtualHost(
                namespace, home, self._flusher, self.context, self.dead_letters.refused
            )
            self.hosts.by_name[namespace] = known
        return known

    def _open(self, host: VirtualHost) -> None:
        """Open the streams of a virtual host after loading."""
        taken = {DEFAULT_EXCHANGE: data_topic(host.name)}
        taken |= {each.exchange: each.topic for each in host.state.topics.values()}
        for exchange, topic in taken.items():
            writers = self.topics.writers(topic)
            for writer in writers:
                self.context.bodies.opened(writer.id, exchange)
            if writers:
                host.exchanges.prepare(writers)
                host.exchanges.open_exchange(exchange, writers)
                if exchange not in host.state.topology.live:
                    host.exchanges.retire_exchange(exchange)
        host.exchanges.change(host.state.topology.restarted())

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # A bug: the node's exception handler decides how to continue without queues.
            task.get_loop().call_exception_handler(
                {"message": "a task of the queues failed", "exception": error, "task": task}
            )
