"""What the drivers of replicated streams work with: the node's rooms, handed in once."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from mainstem.cluster.peers.asking_service import Asker
from mainstem.cluster.peers.frames import Chunk, Service
from mainstem.log.store import LogStore
from mainstem.model.clock import Clock
from mainstem.model.ids import NodeId
from mainstem.model.metadata import Range, Stream, Topic
from mainstem.model.topic_config import TopicSettings
from mainstem.placement.service import PlacementService
from mainstem.streams.ack_policy import AckPolicy
from mainstem.streams.flusher import Flusher

SettingsOf = Callable[[Topic], TopicSettings]


class PeerCalls(Asker, Protocol):
    """How other nodes are reached; ``Peers`` on a network, anything else in simulations."""

    def note(self, node: NodeId, service: Service, chunks: Sequence[Chunk]) -> bool:
        """Tell a node something, in order; False if it cannot be told now."""
        ...

    def serve(
        self,
        service: Service,
        handler: Callable[[NodeId, memoryview], Awaitable[Sequence[Chunk]]],
    ) -> None:
        """Answer questions for a service."""
        ...

    def hear(self, service: Service, handler: Callable[[NodeId, memoryview], None]) -> None:
        """Take notes for a service."""
        ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The rooms around the streams of one node."""

    placement: PlacementService
    store: LogStore
    flusher: Flusher
    clock: Clock
    settings_of: SettingsOf
    node: NodeId
    peers: PeerCalls

    def now_ms(self) -> int:
        """Milliseconds of a clock that never goes back."""
        return int(self.clock.monotonic() * 1000)


def policy_of(facts: Range) -> AckPolicy:
    """How many replicas of a range acknowledge."""
    return AckPolicy(len(facts.replicas), facts.acks_needed)


def directory_of(facts: Range, node: NodeId) -> str:
    """The disk that a range was assigned to on a node; empty: any."""
    return facts.directory_of(node) or ""


def is_lone(stream: Stream) -> bool:
    """Whether only one node holds a stream, and goes on where its files end."""
    return not stream.is_taken_over and all(len(one.replicas) == 1 for one in stream.ranges)
