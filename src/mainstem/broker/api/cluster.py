"""The broker API for the cluster as a whole: features, nodes, the catalogue."""

from collections.abc import Awaitable, Collection, Iterable, Sequence
from typing import Protocol

from msgspec import Struct

from mainstem.model.ids import NodeId, StreamId
from mainstem.model.metadata import Node
from mainstem.placement.state.cluster_view import NodeRow, RangeRow

__all__ = [
    "Cluster",
    "ClusterOverview",
    "FeatureUpdate",
    "NodeRow",
    "Quorum",
    "QuorumMember",
    "RangeRow",
]


class FeatureUpdate(Struct, frozen=True):
    """The requested level of a feature; ``may_lower``: it may be lower than the current one."""

    name: str
    level: int
    may_lower: bool = False


class QuorumMember(Struct, frozen=True):
    """One node that keeps the catalogue; ``end``: its last known log end, -1: unknown."""

    node: Node
    directory: bytes
    end: int
    is_voter: bool = True


class Quorum(Struct, frozen=True):
    """The nodes that keep the catalogue. ``end`` is its next entry, ``epoch`` only grows."""

    leader: Node
    epoch: int
    end: int
    directory: bytes
    at_ms: int
    members: tuple[QuorumMember, ...] = ()


class ClusterOverview(Struct, frozen=True):
    """Overview of the cluster; ``states``: how many ranges are in each, ``moving``: partitions."""

    leader: NodeId
    term: int
    voters: tuple[NodeId, ...]
    nodes: tuple[NodeRow, ...]
    states: dict[str, int]
    moving: int


class Cluster(Protocol):
    """Mutating operations return once the change is durable."""

    def level(self, feature: str) -> int:
        """The current level of a feature."""
        ...

    def features_epoch(self) -> int:
        """A number that grows with every change of a level."""
        ...

    async def update_features(
        self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False
    ) -> None:
        """Change the levels of features, all or none."""
        ...

    async def unregister(self, node: NodeId) -> None:
        """Remove a node that left for good."""
        ...

    async def elect(
        self, streams: Sequence[StreamId], *, unclean: bool, timeout_ms: int
    ) -> Collection[StreamId]:
        """Move streams to their preferred writer, offline ones to any; returns those that changed.

        A live writer hands its stream over; only a stream without a writer is reassigned directly.
        """
        ...

    async def reassign(self, stream: StreamId, replicas: tuple[NodeId, ...] | None) -> None:
        """Set the target replicas of a stream, the preferred writer first; None: the current."""
        ...

    async def drain(self, node: NodeId, *, on: bool) -> None:
        """Drain a node, or let it hold ranges again."""
        ...

    async def rebalance(self) -> int:
        """Balance load over nodes; returns how many partitions are moved."""
        ...

    def overview(self) -> ClusterOverview:
        """An overview of nodes, leader and ranges."""
        ...

    def ranges(self, topic: str | None = None) -> Iterable[RangeRow]:
        """Every range, or those of one topic, and the nodes that hold it."""
        ...

    def lost_lately(self) -> Sequence[Node]:
        """Nodes that were declared dead recently, and may come back."""
        ...

    def is_live(self, node: NodeId) -> bool:
        """Whether a node is registered and not declared dead."""
        ...

    async def ensure_internal(self, topic: str) -> None:
        """Create an internal topic if it does not exist."""
        ...

    def settled(self) -> Awaitable[None] | None:
        """Waits for writers that are about to change, for a limited time. None: none are."""
        ...

    def controller(self) -> NodeId:
        """The current placement leader; -1: there is none."""
        ...

    def quorum(self) -> Quorum:
        """The nodes that keep the catalogue."""
        ...
