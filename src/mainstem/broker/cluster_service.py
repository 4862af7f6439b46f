"""The cluster as a whole, in terms of the catalogue."""

import logging
from collections.abc import Callable, Sequence

from mainstem.broker.cluster_api import FeatureUpdate, Quorum
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, Fenced, InvalidRequest, Unavailable
from mainstem.model.features import check_levels, level_of
from mainstem.model.ids import NO_TOPIC_ID, NodeId
from mainstem.model.metadata import Node
from mainstem.placement.records import SetFeatures, UnregisterNode
from mainstem.placement.service import PlacementService

CONFLICTS_MAX = 10
_DIRECTORY_BYTES = len(NO_TOPIC_ID)

_log = logging.getLogger(__name__)


class ClusterAdmin:
    """The ``Cluster`` of one node; ``node`` tells which one it is and where it is reached."""

    def __init__(self, placement: PlacementService, node: Callable[[], Node], clock: Clock) -> None:
        self._placement = placement
        self._catalogue = placement.catalogue
        self._node = node
        self._wall_ms = clock.wall_ms

    def level(self, feature: str) -> int:
        """The level of a feature that there is."""
        return level_of(self._catalogue.features, feature)

    def features_epoch(self) -> int:
        """A number that grows with every change of a level."""
        return self._catalogue.features_epoch

    async def update_features(
        self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False
    ) -> None:
        """Give features other levels, all or none."""
        levels = {update.name: update.level for update in updates}
        if len(levels) != len(updates):
            raise InvalidRequest(ErrorCode.INVALID_REQUEST, "a feature is named more than once")
        check_levels(levels)
        for _ in range(CONFLICTS_MAX):
            for update in updates:
                self._check_direction(update)
            command = SetFeatures(self._catalogue.features_epoch, levels)
            if validate_only:
                self._placement.check(command)
                return
            try:
                await self._placement.submit(command)
            except Fenced:
                continue
            _log.info("features are now at %s", levels)
            return
        raise Unavailable(ErrorCode.OVERLOADED, "features change all the time")

    async def unregister(self, node: NodeId) -> None:
        """Forget a node that is gone for good."""
        await self._placement.submit(UnregisterNode(node, self._node().id))
        _log.info("node %d is no longer part of the cluster", node)

    def quorum(self) -> Quorum:
        """Who keeps the catalogue: this node alone."""
        node = self._node()
        directory = b""
        for known in self._catalogue.nodes():
            if known.node.id == node.id:
                directory = bytes.fromhex(known.directory)
        return Quorum(
            leader=node,
            epoch=self._catalogue.incarnation(node.id),
            end=self._placement.next_index,
            directory=directory if len(directory) == _DIRECTORY_BYTES else NO_TOPIC_ID,
            at_ms=self._wall_ms(),
        )

    def _check_direction(self, update: FeatureUpdate) -> None:
        level = self.level(update.name)
        if update.level < level and not update.may_lower:
            raise InvalidRequest(
                ErrorCode.INVALID_FEATURE_LEVEL,
                f"it is at {level}, and {update.level} would be a downgrade",
                subject=update.name,
                remedy="ask for a downgrade",
            )
        if update.level > level and update.may_lower:
            raise InvalidRequest(
                ErrorCode.INVALID_FEATURE_LEVEL,
                f"it is at {level}, and {update.level} would be no downgrade",
                subject=update.name,
                remedy="ask for an upgrade",
            )
