"""Administration of the cluster as a whole: features, the quorum, removal of nodes."""

from msgspec import Struct

from mainstem import __version__
from mainstem.client import errors
from mainstem.client.cluster import Cluster, call_each
from mainstem.wire.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from mainstem.wire.kafka.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
)
from mainstem.wire.kafka.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from mainstem.wire.kafka.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_METADATA_TOPIC = "__cluster_metadata"
_UPGRADE, _SAFE_DOWNGRADE = 1, 2
_SOFTWARE = ("mainstem", __version__)


class Feature(Struct, frozen=True):
    """A feature: the levels it may have, both ends included, and the one it has; 0 is off."""

    name: str
    lowest: int
    highest: int
    level: int


class Quorum(Struct, frozen=True):
    """The voters of the metadata quorum, and their offsets."""

    leader: int
    epoch: int
    end: int
    voters: tuple[int, ...]
    observers: tuple[int, ...]


class ClusterAdmin:
    """Administers the cluster as a whole; reached through ``Admin.cluster``."""

    def __init__(self, cluster: Cluster, *, timeout_ms: int) -> None:
        self._cluster = cluster
        self._timeout_ms = timeout_ms

    async def features(self) -> list[Feature]:
        """The features of the cluster."""
        response: ApiVersionsResponse = await self._cluster.call_any(
            ApiVersionsRequest(*_SOFTWARE), timeout_ms=self._timeout_ms
        )
        errors.check(response.error_code, None, subject="features")
        levels = {each.name: each.max_version_level for each in response.finalized_features}
        return sorted(
            (
                Feature(each.name, each.min_version, each.max_version, levels.get(each.name, 0))
                for each in response.supported_features
            ),
            key=lambda feature: feature.name,
        )

    async def supported(self) -> dict[int, dict[str, str]]:
        """The levels that each node supports: node to feature to "lowest-highest".

        A node that does not respond is omitted.
        """
        return {
            node: {
                each.name: f"{each.min_version}-{each.max_version}"
                for each in response.supported_features
            }
            for node, response in await call_each(
                self._cluster, ApiVersionsRequest(*_SOFTWARE), timeout_ms=self._timeout_ms
            )
        }

    async def set_feature(self, name: str, level: int, *, validate_only: bool = False) -> None:
        """Sets the level of a feature.

        Raises:
            InvalidRequest: the feature is unknown, or cannot have that level.
        """
        held = {feature.name: feature.level for feature in await self.features()}
        lowers = level < held.get(name, 0)
        update = FeatureUpdateKey(
            name, level, _SAFE_DOWNGRADE if lowers else _UPGRADE, allow_downgrade=lowers
        )
        response: UpdateFeaturesResponse = await self._cluster.call_controller(
            UpdateFeaturesRequest(feature_updates=[update], validate_only=validate_only),
            timeout_ms=self._timeout_ms,
        )
        errors.check(response.error_code, response.error_message, subject=name)
        for result in response.results:
            errors.check(result.error_code, result.error_message, subject=result.feature)

    async def quorum(self) -> Quorum:
        """Describes the metadata quorum."""
        topic = RequestTopicData(_METADATA_TOPIC, [RequestPartitionData(0)])
        response: DescribeQuorumResponse = await self._cluster.call_any(
            DescribeQuorumRequest([topic]), timeout_ms=self._timeout_ms
        )
        errors.check(response.error_code, response.error_message, subject="quorum")
        [[found]] = [each.partitions for each in response.topics]
        errors.check(found.error_code, found.error_message, subject="quorum")
        return Quorum(
            found.leader_id,
            found.leader_epoch,
            found.high_watermark,
            tuple(voter.replica_id for voter in found.current_voters),
            tuple(observer.replica_id for observer in found.observers),
        )

    async def unregister(self, node: int) -> None:
        """Removes a node that is permanently gone.

        Raises:
            InvalidRequest: the node is unknown, or still needed.
        """
        response: UnregisterBrokerResponse = await self._cluster.call_controller(
            UnregisterBrokerRequest(node), timeout_ms=self._timeout_ms
        )
        errors.check(response.error_code, response.error_message, subject=f"node {node}")
