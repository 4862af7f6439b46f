"""The durable state of one virtual host: exchanges, bindings, their topics, routing cursors.

Facts of the topology and of routers do not name their virtual host, so they are stored as
``VirtualHostFact``s. A snapshot has parts, and is valid once the last one is there: one that a
crash cut short is ignored, and the facts before it stay valid.
"""

from collections.abc import Callable, Iterator
from itertools import chain, islice

from msgspec import Struct

from mainstem.model.ids import StreamId
from mainstem.queues.routing.router import CursorMoved, VersionTaken
from mainstem.queues.routing.topology import (
    Bound,
    ExchangeDeclared,
    ExchangeDeleted,
    Topology,
    Unbound,
    VersionReached,
)

_PART_FACTS = 1_000


class TopicTaken(Struct, frozen=True, tag="topic-taken", array_like=True):
    """A topic stores the messages of an exchange; a shared one existed before."""

    exchange: str
    topic: str
    is_shared: bool = False


class TopicLeft(Struct, frozen=True, tag="topic-left", array_like=True):
    """A topic no longer belongs to an exchange."""

    exchange: str


VirtualHostChange = (
    ExchangeDeclared
    | ExchangeDeleted
    | Bound
    | Unbound
    | VersionReached
    | VersionTaken
    | CursorMoved
    | TopicTaken
    | TopicLeft
)


class VirtualHostFact(Struct, frozen=True, tag="space", array_like=True):
    """A fact of one virtual host."""

    namespace: str
    fact: VirtualHostChange


class VirtualHostSnapshotPart(Struct, frozen=True, tag="space-part", array_like=True):
    """A part of a virtual host's complete state."""

    namespace: str
    part: int
    is_last: bool
    facts: tuple[VirtualHostChange, ...]


class RoutingProgress:
    """How far a stream is routed, and the topology versions for the following records."""

    __slots__ = ("cursor", "marks", "version")

    def __init__(self, cursor: int, version: int) -> None:
        self.cursor = cursor
        self.version = version
        self.marks: list[VersionTaken] = []


class VirtualHostState:
    """Holds the durable state of one virtual host. Only ``replay`` changes it."""

    def __init__(self, has_queue: Callable[[str], bool]) -> None:
        self._has_queue = has_queue
        self.topology = Topology(has_queue)
        self.topics: dict[str, TopicTaken] = {}
        self.positions: dict[StreamId, RoutingProgress] = {}

    def replay(self, fact: VirtualHostChange) -> None:
        """Apply a stored fact."""
        match fact:
            case TopicTaken(exchange):
                self.topics[exchange] = fact
            case TopicLeft(exchange):
                self.topics.pop(exchange, None)
            case CursorMoved(stream, until, version):
                self._move(stream, until, version)
            case VersionTaken(stream, offset, version):
                position = self.positions.setdefault(stream, RoutingProgress(offset, version))
                position.marks.append(fact)
            case _:
                self.topology.replay(fact)

    def forget(self, stream: StreamId) -> None:
        """Remove a stream."""
        self.positions.pop(stream, None)

    def snapshot(self) -> Iterator[tuple[VirtualHostChange, ...]]:
        """Facts that rebuild this state from an empty one, in pieces."""
        facts = chain(self.topology.snapshot(), self.topics.values(), self._positions())
        while piece := tuple(islice(facts, _PART_FACTS)):
            yield piece

    def _positions(self) -> Iterator[VirtualHostChange]:
        for stream, position in self.positions.items():
            yield CursorMoved(stream, position.cursor, position.version)
            yield from position.marks

    def _move(self, stream: StreamId, until: int, version: int) -> None:
        position = self.positions.get(stream)
        if position is None:
            self.positions[stream] = RoutingProgress(until, version)
            return
        position.cursor = until
        position.version = version
        position.marks = [mark for mark in position.marks if mark.offset > until]
