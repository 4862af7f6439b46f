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
    """The level that a feature shall have; ``may_lower``: also a lower one than now."""

    name: str
    level: int
    may_lower: bool = False


class QuorumMember(Struct, frozen=True):
    """One node that keeps the catalogue; ``end``: how far it is known to be, -1: unknown."""

    node: Node
    directory: bytes
    end: int
    is_voter: bool = True


class Quorum(Struct, frozen=True):
    """Who keeps the catalogue. ``end`` is the number of its next entry, ``epoch`` only grows."""

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
    """Mutating verbs return once the change is durable."""

    def level(self, feature: str) -> int:
        """The level of a feature that there is."""
        ...

    def features_epoch(self) -> int:
        """A number that grows with every change of a level."""
        ...

    async def update_features(
        self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False
    ) -> None:
        """Give features other levels, all or none."""
        ...

    async def unregister(self, node: NodeId) -> None:
        """Forget a node that is gone for good."""
        ...

    async def elect(
        self, streams: Sequence[StreamId], *, unclean: bool, timeout_ms: int
    ) -> Collection[StreamId]:
        """Give streams their preferred writer, or offline ones any; those that changed.

        Who writes a stream hands it over: only one that nobody writes is taken without asking.
        """
        ...

    async def reassign(self, stream: StreamId, replicas: tuple[NodeId, ...] | None) -> None:
        """Want a stream on these nodes, the preferred writer first; None: where it is."""
        ...

    async def drain(self, node: NodeId, *, on: bool) -> None:
        """Let a node hold nothing, or let it hold ranges again."""
        ...

    async def rebalance(self) -> int:
        """Let nodes share the work evenly; how many partitions are moved."""
        ...

    def overview(self) -> ClusterOverview:
        """Nodes, who leads, how ranges are."""
        ...

    def ranges(self, topic: str | None = None) -> Iterable[RangeRow]:
        """Every range, or those of one topic, and who holds it."""
        ...

    def lost_lately(self) -> Sequence[Node]:
        """Nodes that were taken for dead a moment ago, and may be back in the next."""
        ...

    def is_live(self, node: NodeId) -> bool:
        """Whether a node is registered and not taken for dead."""
        ...

    async def ensure_internal(self, topic: str) -> None:
        """Create an internal topic if it is not there."""
        ...

    def settled(self) -> Awaitable[None] | None:
        """Who writes what is about to change: done when it has, or soon. None: nothing is."""
        ...

    def controller(self) -> NodeId:
        """Who decides about the cluster now; -1: nobody does."""
        ...

    def quorum(self) -> Quorum:
        """Who keeps the catalogue."""
        ...
