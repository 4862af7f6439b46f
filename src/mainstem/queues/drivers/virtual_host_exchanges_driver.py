"""The exchanges of one virtual host: their topology, their streams, and their routing cursors.

change ─▶ facts ─▶ home shard ─▶ committed ─▶ answered
            └─▶ routers note from which offset on it is valid
"""

from collections.abc import Iterator, Sequence

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.ids import StreamId
from mainstem.queues.admission.watermarks import Pressure
from mainstem.queues.context import QueuesContext
from mainstem.queues.drivers.virtual_host_queues_driver import VirtualHostQueues
from mainstem.queues.publishing.exchange_stream_driver import ExchangeStream
from mainstem.queues.publishing.publish_batch_driver import PublishBatcher
from mainstem.queues.publishing.publish_flush_driver import PublishFlusher
from mainstem.queues.publishing.router_cursors_driver import RouterCursors
from mainstem.queues.routing.router import CursorMoved, Router
from mainstem.queues.routing.topology import (
    Bound,
    ExchangeDeclared,
    ExchangeDeleted,
    TopologyFact,
    Unbound,
)
from mainstem.queues.shards.shard_driver import QueueShardDriver
from mainstem.queues.storage.virtual_host_state import (
    VirtualHostChange,
    VirtualHostFact,
    VirtualHostState,
)
from mainstem.streams.writer.stream_driver import StreamWriter


class VirtualHostExchanges:
    """Serves the exchanges of one virtual host and their streams."""

    def __init__(
        self,
        state: VirtualHostState,
        home: QueueShardDriver,
        queues: VirtualHostQueues,
        flusher: PublishFlusher,
        context: QueuesContext,
    ) -> None:
        self.state = state
        self._home = home
        self._queues = queues
        self._flusher = flusher
        self._context = context
        self._cursors = RouterCursors()
        self.streams: dict[str, list[ExchangeStream]] = {}
        self._level = Pressure.ACCEPT
        # Streams of deleted exchanges: messages published before are still confirmed and routed.
        self._leaving: dict[str, list[ExchangeStream]] = {}

    def record(self, fact: VirtualHostChange) -> None:
        """Apply a fact, and store it in the home shard."""
        self.state.replay(fact)
        self._home.store(VirtualHostFact(self._queues.host, fact))

    def change(self, facts: Sequence[TopologyFact]) -> None:
        """Change exchanges or bindings, effective from the next message on."""
        if not facts:
            return
        self._queues.changed()
        # Messages published before are appended before, so that offsets separate old and new.
        self._flusher.flush()
        affected = self.state.topology.upstream(_sources(facts))
        for fact in facts:
            self.record(fact)
        affected |= self.state.topology.upstream(_sources(facts))
        for stream in self.all_streams():
            taken = stream.router.on_topology(stream.writer.next_offset)
            if taken is not None and stream.exchange in affected:
                self.record(taken)
        for fact in facts:
            if isinstance(fact, ExchangeDeleted):
                self.retire_exchange(fact.name)

    def prepare(self, writers: Sequence[StreamWriter]) -> None:
        """Store the start cursor of new streams before anything is published to them."""
        for writer in writers:
            if writer.id not in self.state.positions:
                self.record(CursorMoved(writer.id, writer.committed, self.state.topology.version))

    def open_exchange(self, exchange: str, writers: Sequence[StreamWriter]) -> None:
        """Open the prepared streams of an exchange."""
        # An exchange that is declared again before its routing finished keeps its streams.
        going_on = self._leaving.pop(exchange, None)
        self.streams[exchange] = going_on or [self._opened(exchange, writer) for writer in writers]
        self.note_exchange(exchange)

    def _opened(self, exchange: str, writer: StreamWriter) -> ExchangeStream:
        position = self.state.positions[writer.id]
        self._cursors.opened(writer.id, position.cursor)
        router = Router(
            writer.id, self.state.topology, cursor=position.cursor, version=position.version
        )
        for mark in position.marks:
            router.replay(mark)
        router.on_topology(writer.next_offset)
        router.pressure = self._level
        self._context.bodies.opened(writer.id, exchange)
        batcher = PublishBatcher(
            exchange, writer, router, self._context, self._flusher, self._queues
        )
        return ExchangeStream(batcher, self._queues, self._cursors)

    def note_exchange(self, exchange: str) -> None:
        """Pass the properties of a declared exchange to its streams."""
        if exchange in self.state.topology.live:
            described = self.state.topology.live.exchange(exchange)
            for stream in self.streams.get(exchange, ()):
                stream.batcher.described(described)

    def retire_exchange(self, exchange: str) -> None:
        """Close a deleted exchange to publishers; accepted messages are still routed."""
        error = InvalidRequest(
            ErrorCode.UNKNOWN_EXCHANGE, f"exchange '{exchange}' was deleted", subject=exchange
        )
        streams = self.streams.pop(exchange, [])
        for stream in streams:
            stream.batcher.refuse_waiting(error)
        if streams:
            self._leaving[exchange] = streams

    def is_done(self, stream: ExchangeStream) -> bool:
        """Whether a stream's exchange is deleted, and all its messages are in their queues."""
        is_routed = stream.router.cursor >= stream.writer.next_offset
        return stream.exchange in self._leaving and is_routed

    def close_exchange(self, exchange: str) -> bool:
        """Close the streams of a deleted exchange; False if routing is not finished."""
        streams = self._leaving.get(exchange, ())
        if not all(map(self.is_done, streams)):
            return False
        self._leaving.pop(exchange, None)
        for stream in streams:
            stream.close()
            self._cursors.closed(stream)
        return True

    def all_streams(self) -> Iterator[ExchangeStream]:
        """Every stream of every exchange."""
        served = (*self.streams.values(), *self._leaving.values())
        return (stream for streams in served for stream in streams)

    def sources(self) -> list[tuple[StreamId, int]]:
        """The ends of streams whose records may be routed again, now or after a crash."""
        self._flusher.flush()
        return [
            (stream.writer.id, stream.writer.next_offset)
            for stream in self.all_streams()
            if self._cursors.may_be_routed_again(stream)
        ]

    def keep_cursors(self) -> None:
        """Store the routing cursor of each stream, and drop topology versions no longer needed."""
        moved = self._cursors.take_moved()
        for stream in moved:
            router = stream.router
            self.record(CursorMoved(router.stream, router.cursor, router.version))
        if moved:
            versions = [stream.router.version for stream in self.all_streams()]
            self.state.topology.forget(min(versions, default=self.state.topology.version))

    def queue_gone(self, queue: str) -> None:
        """Remove a deleted queue with its bindings and pending offers."""
        self.change(self.state.topology.queue_gone(queue))
        for stream in self.all_streams():
            if stream.router.on_queue_gone(queue) is not None:
                self._cursors.moved(stream)

    def on_pressure(self, level: Pressure) -> None:
        """Set the memory pressure of all routers."""
        self._level = level
        for stream in self.all_streams():
            stream.router.pressure = level


def _sources(facts: Sequence[TopologyFact]) -> list[str]:
    names: list[str] = []
    for fact in facts:
        match fact:
            case Bound(_, binding) | Unbound(_, binding):
                names.append(binding.source)
            case ExchangeDeclared(_, exchange):
                names.append(exchange.name)
            case ExchangeDeleted(_, name):
                names.append(name)
            case _:
                pass
    return names
