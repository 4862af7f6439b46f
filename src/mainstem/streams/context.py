"""Services of the node that the drivers of streams use, passed in once."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from mainstem.cluster.peers.frames import Chunk, PeerService
from mainstem.cluster.peers.requests_service import PeerRequester
from mainstem.log.store import LogStore
from mainstem.model.clock import Clock
from mainstem.model.config.topic import TopicSettings
from mainstem.model.ids import NodeId
from mainstem.model.metadata import Range, Stream, Topic
from mainstem.placement.service import PlacementService
from mainstem.streams.ack_policy import AckPolicy
from mainstem.streams.writer.flusher import Flusher

SettingsOf = Callable[[Topic], TopicSettings]


class PeerMessaging(PeerRequester, Protocol):
    """Access to other nodes; ``Peers`` on a network, a simulated one in simulations."""

    def note(self, node: NodeId, service: PeerService, chunks: Sequence[Chunk]) -> bool:
        """Send a note to a node, in order; False if that is not possible now."""
        ...

    def serve(
        self,
        service: PeerService,
        handler: Callable[[NodeId, memoryview], Awaitable[Sequence[Chunk]]],
    ) -> None:
        """Register the handler of a service's requests."""
        ...

    def on_note(self, service: PeerService, handler: Callable[[NodeId, memoryview], None]) -> None:
        """Register the handler of a service's notes."""
        ...


@dataclass(frozen=True, slots=True)
class NodeContext:
    """The services that the streams of one node use, whether there are other nodes or not."""

    placement: PlacementService
    store: LogStore
    flusher: Flusher
    clock: Clock
    settings_of: SettingsOf
    node: NodeId

    def now_ms(self) -> int:
        """Milliseconds of a clock that never goes back."""
        return int(self.clock.monotonic() * 1000)


@dataclass(frozen=True, slots=True)
class StreamsContext(NodeContext):
    """The same with the other nodes, which replicated streams need."""

    peers: PeerMessaging


def with_peers(context: NodeContext, peers: PeerMessaging) -> StreamsContext:
    """The context of replicated streams on a node that has peers."""
    return StreamsContext(
        context.placement,
        context.store,
        context.flusher,
        context.clock,
        context.settings_of,
        context.node,
        peers,
    )


def policy_of(range_info: Range) -> AckPolicy:
    """How many replicas of a range acknowledge."""
    return AckPolicy(len(range_info.replicas), range_info.acks_needed)


def directory_of(range_info: Range, node: NodeId) -> str:
    """The disk that a range was assigned to on a node; empty: any."""
    return range_info.directory_of(node) or ""


def is_lone(stream: Stream) -> bool:
    """Whether only one node holds a stream, and continues where its files end."""
    return not stream.is_taken_over and all(len(one.replicas) == 1 for one in stream.ranges)
