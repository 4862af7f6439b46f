"""The exchanges of one namespace: their topology, their streams, and how far each is routed.

change ─▶ facts ─▶ home shard ─▶ committed ─▶ answered
            └─▶ routers note from which offset on it holds
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.ids import StreamId
from mainstem.queues.burst_runtime import Bursts
from mainstem.queues.exchange_stream_runtime import ExchangeStream
from mainstem.queues.queue_shard_runtime import QueueShardRuntime
from mainstem.queues.router import CursorMoved, Router
from mainstem.queues.space_book import InSpace, SpaceBook, SpaceFact
from mainstem.queues.topology import Bound, ExchangeDeclared, ExchangeDeleted, TopologyFact, Unbound
from mainstem.queues.watermarks import Pressure
from mainstem.streams.writer_driver import StreamWriter


class ExchangeSurroundings(Protocol):
    """What exchanges ask of the rest of the room."""

    def flush_soon(self, stream: Bursts) -> None:
        """A stream has something to append."""
        ...

    def flush(self) -> None:
        """Append all that was published, now."""
        ...

    def opened(self, stream: StreamId, exchange: str) -> None:
        """A stream belongs to an exchange from now on."""
        ...


class SpaceExchanges(ABC):
    """See the module."""

    def __init__(
        self, name: str, book: SpaceBook, home: QueueShardRuntime, around: ExchangeSurroundings
    ) -> None:
        self.name = name
        self.book = book
        self.home = home
        self.streams: dict[str, list[ExchangeStream]] = {}
        self.level = Pressure.ACCEPT
        self.revision = 0
        self._around = around
        # Exchanges that are gone: what was published to them before is still confirmed and routed.
        self._leaving: dict[str, list[ExchangeStream]] = {}
        self._moved: dict[ExchangeStream, None] = {}
        # Where streams are routed from after a crash: kept just now, and stored for certain.
        self._kept: dict[StreamId, int] = {}
        self._safe: dict[StreamId, int] = {}

    @abstractmethod
    def make_stream(self, exchange: str, door: StreamWriter, router: Router) -> ExchangeStream:
        """A stream of an exchange, in service."""

    def record(self, fact: InSpace) -> None:
        """Something happened here: remember it, and let the home shard keep it."""
        self.book.replay(fact)
        self.home.store(SpaceFact(self.name, fact))

    def change(self, facts: Sequence[TopologyFact]) -> None:
        """Exchanges or bindings change from the next message on."""
        if not facts:
            return
        self.revision += 1
        # What was published before is appended before, so that offsets tell old from new.
        self._around.flush()
        affected = self.book.topology.upstream(_sources(facts))
        for fact in facts:
            self.record(fact)
        affected |= self.book.topology.upstream(_sources(facts))
        for stream in self.all_streams():
            taken = stream.router.on_topology(stream.door.next_offset)
            if taken is not None and stream.exchange in affected:
                self.record(taken)
        for fact in facts:
            if isinstance(fact, ExchangeDeleted):
                self.retire_exchange(fact.name)

    def prepare(self, doors: Sequence[StreamWriter]) -> None:
        """New streams are routed from where they end now; kept before anything is published."""
        for door in doors:
            if door.id not in self.book.positions:
                self.record(CursorMoved(door.id, door.committed, self.book.topology.version))

    def open_exchange(self, exchange: str, doors: Sequence[StreamWriter]) -> None:
        """The streams of an exchange serve from now on; they are prepared."""
        # Declared again before all was done, it goes on where it is.
        going_on = self._leaving.pop(exchange, None)
        self.streams[exchange] = going_on or [self._opened(exchange, door) for door in doors]
        self.note_exchange(exchange)

    def _opened(self, exchange: str, door: StreamWriter) -> ExchangeStream:
        position = self.book.positions[door.id]
        self._safe[door.id] = position.cursor
        router = Router(
            door.id, self.book.topology, cursor=position.cursor, version=position.version
        )
        for mark in position.marks:
            router.replay(mark)
        router.on_topology(door.next_offset)
        router.pressure = self.level
        stream = self.make_stream(exchange, door, router)
        self._around.opened(door.id, exchange)
        return stream

    def note_exchange(self, exchange: str) -> None:
        """An exchange was declared: what its streams need to know of it."""
        if exchange in self.book.topology.live:
            described = self.book.topology.live.exchange(exchange)
            for stream in self.streams.get(exchange, ()):
                stream.described(described)

    def retire_exchange(self, exchange: str) -> None:
        """An exchange is gone: nothing more is taken; what was is confirmed and routed."""
        error = InvalidRequest(
            ErrorCode.UNKNOWN_EXCHANGE, f"exchange '{exchange}' was deleted", subject=exchange
        )
        streams = self.streams.pop(exchange, [])
        for stream in streams:
            stream.refuse_waiting(error)
        if streams:
            self._leaving[exchange] = streams

    def is_done(self, stream: ExchangeStream) -> bool:
        """Whether a stream's exchange is gone, and all that it took is in its queues."""
        is_routed = stream.router.cursor >= stream.door.next_offset
        return stream.exchange in self._leaving and is_routed

    def close_exchange(self, exchange: str) -> bool:
        """Let go of an exchange that is gone; False where it is not done yet."""
        streams = self._leaving.get(exchange, ())
        if not all(map(self.is_done, streams)):
            return False
        self._leaving.pop(exchange, None)
        for stream in streams:
            stream.close()
            self._moved.pop(stream, None)
            for known in (self._safe, self._kept):
                known.pop(stream.door.id, None)
        return True

    def all_streams(self) -> Iterator[ExchangeStream]:
        """Every stream of every exchange."""
        served = (*self.streams.values(), *self._leaving.values())
        return (stream for streams in served for stream in streams)

    def sources(self) -> list[tuple[StreamId, int]]:
        """Where streams end that may be routed again from before it, now or after a crash."""
        self._around.flush()
        return [
            (stream.door.id, stream.door.next_offset)
            for stream in self.all_streams()
            if self._safe.get(stream.door.id, 0) < stream.door.next_offset
        ]

    def stored(self, stream: ExchangeStream) -> None:
        """The cursor of a stream moved: kept now and then, since owners know what they have."""
        self._moved[stream] = None

    def keep_cursors(self) -> None:
        """Keep how far each stream is routed, and forget versions that nobody needs."""
        moved, self._moved = self._moved, {}
        self._safe |= self._kept
        self._kept = {stream.router.stream: stream.router.cursor for stream in moved}
        for stream in moved:
            router = stream.router
            self.record(CursorMoved(router.stream, router.cursor, router.version))
        if moved:
            versions = [stream.router.version for stream in self.all_streams()]
            self.book.topology.forget(min(versions, default=self.book.topology.version))

    def later(self, work: Callable[[], None]) -> None:
        """Go on when others had their turn."""
        asyncio.get_running_loop().call_soon(work)

    def dirty(self, stream: Bursts) -> None:
        """A stream has something to append."""
        self._around.flush_soon(stream)


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
