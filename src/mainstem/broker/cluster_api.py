"""The part of the counter that concerns the cluster as a whole: features, nodes, the catalogue."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from mainstem.model.ids import NodeId
from mainstem.model.metadata import Node


class FeatureUpdate(Struct, frozen=True):
    """The level that a feature shall have; ``may_lower``: also a lower one than now."""

    name: str
    level: int
    may_lower: bool = False


class Quorum(Struct, frozen=True):
    """Who keeps the catalogue. ``end`` is the number of its next entry, ``epoch`` only grows."""

    leader: Node
    epoch: int
    end: int
    directory: bytes
    at_ms: int


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

    def quorum(self) -> Quorum:
        """Who keeps the catalogue."""
        ...
