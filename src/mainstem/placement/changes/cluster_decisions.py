"""Decisions on the cluster as a whole: dynamic settings, features, removal of nodes.

Each decider returns the facts that follow and the reply, or raises a refusal.
"""

from collections.abc import Callable, Mapping
from typing import Any

from mainstem.model.config.client_metrics import check_client_metrics_configs
from mainstem.model.config.group import check_group_configs
from mainstem.model.config.node import check_node_configs
from mainstem.model.errors import ErrorCode, Fenced, InvalidRequest
from mainstem.model.features import MAINSTEM_VERSION, Levels, check_levels
from mainstem.model.ids import NodeId
from mainstem.model.limits import GROUP_NAME_LENGTH_MAX
from mainstem.placement.changes import commands
from mainstem.placement.changes.commands import AnyFact
from mainstem.placement.state.tables import CatalogueTables

ClusterDecision = tuple[tuple[AnyFact, ...], Any]

GROUPS_CONFIGURED_MAX = 10_000
SUBSCRIPTIONS_MAX = 100
"""Limit on subscriptions, since every client is matched against all of them."""
SUBSCRIPTION_NAME_LENGTH_MAX = 249


def _set_node_configs(tables: CatalogueTables, command: commands.SetNodeConfigs) -> ClusterDecision:
    if command.node is None:
        current = tables.cluster_configs()
    else:
        current = tables.node_configs(command.node)
    same_configs(command.expected, current, f"node {command.node}")
    check_node_configs(command.configs, dynamic=True)
    return (commands.NodeConfigsSet(command.node, command.configs),), None


def _set_group_configs(
    tables: CatalogueTables, command: commands.SetGroupConfigs
) -> ClusterDecision:
    configured = tables.group_configs()
    same_configs(command.expected, configured.get(command.group, {}), f"group {command.group}")
    check_group_configs(command.configs)
    if not 0 < len(command.group) <= GROUP_NAME_LENGTH_MAX:
        raise InvalidRequest(ErrorCode.INVALID_REQUEST, "invalid group name")
    if command.group not in configured and len(configured) >= GROUPS_CONFIGURED_MAX:
        raise InvalidRequest(
            ErrorCode.POLICY_VIOLATION,
            f"{len(configured)} groups have settings of their own, which is the limit",
            subject=command.group,
        )
    return (commands.GroupConfigsSet(command.group, command.configs),), None


def _set_client_metrics(
    tables: CatalogueTables, command: commands.SetClientMetrics
) -> ClusterDecision:
    known = tables.client_metrics
    same_configs(command.expected, known.get(command.name, {}), f"client metrics {command.name}")
    check_client_metrics_configs(command.configs)
    if not 0 < len(command.name) <= SUBSCRIPTION_NAME_LENGTH_MAX:
        raise InvalidRequest(ErrorCode.INVALID_REQUEST, "invalid subscription name")
    if command.configs and command.name not in known and len(known) >= SUBSCRIPTIONS_MAX:
        raise InvalidRequest(
            ErrorCode.POLICY_VIOLATION,
            f"there are {len(known)} subscriptions, which is the limit",
            subject=command.name,
        )
    return (commands.ClientMetricsSet(command.name, command.configs),), None


def _set_features(tables: CatalogueTables, command: commands.SetFeatures) -> ClusterDecision:
    if command.expected_epoch != tables.features_epoch:
        raise Fenced(ErrorCode.FENCED_EPOCH, "the features were changed concurrently")
    check_levels(command.levels)
    _check_version(tables, command.levels.get(MAINSTEM_VERSION, tables.level))
    levels = {**tables.features, **command.levels}
    if levels == tables.features:
        return (), None
    return (commands.FeaturesSet(tables.features_epoch + 1, levels),), None


def _check_version(tables: CatalogueTables, level: int) -> None:
    """Refuse to lower the version, or to raise it above what some node supports."""
    if level < tables.level:
        raise InvalidRequest(
            ErrorCode.INVALID_FEATURE_LEVEL,
            f"it is at {tables.level} and cannot be lowered to {level}: what was written since "
            "cannot be read at a lower level",
            subject=MAINSTEM_VERSION,
            remedy="restore a backup that was made before the level was raised",
        )
    if level > tables.level:
        for known in tables.nodes():
            node = known.node.id
            remove = f"; if it has failed for good: mainstem node remove {node}"
            levels_include(known.levels, level, node, otherwise=remove)


def levels_include(levels: Levels, level: int, node: NodeId, *, otherwise: str = "") -> None:
    """Refuse a level of ``mainstem.version`` that a node does not support.

    Raises:
        InvalidRequest: see above.
    """
    if not levels[0] <= level <= levels[1]:
        raise InvalidRequest(
            ErrorCode.INVALID_FEATURE_LEVEL,
            f"node {node} supports {levels[0]} to {levels[1]}, not {level}",
            subject=MAINSTEM_VERSION,
            remedy=f"start node {node} with a release that supports {level}{otherwise}",
        )


def _unregister_node(tables: CatalogueTables, command: commands.UnregisterNode) -> ClusterDecision:
    node = command.node
    if not tables.incarnation(node):
        raise InvalidRequest(
            ErrorCode.UNKNOWN_NODE, "no such node is registered", subject=f"node {node}"
        )
    if node == command.asked:
        raise InvalidRequest(
            ErrorCode.POLICY_VIOLATION,
            "the node is running: it is the one that got the request",
            subject=f"node {node}",
        )
    held = sum(1 for _ in tables.streams_of(node))
    if held:
        raise InvalidRequest(
            ErrorCode.POLICY_VIOLATION,
            f"{held} partitions are written by it",
            subject=f"node {node}",
            remedy="move or delete them first",
        )
    kept = sum(
        1
        for topic in tables.topics()
        for s in topic.streams
        for r in s.ranges
        if node in r.replicas
    )
    if kept:
        raise InvalidRequest(
            ErrorCode.POLICY_VIOLATION,
            f"it is assigned {kept} ranges",
            subject=f"node {node}",
            remedy="drain the node first, or delete the topics",
        )
    return (commands.NodeUnregistered(node),), None


def same_configs(expected: Mapping[str, str], current: Mapping[str, str], subject: str) -> None:
    """Refuse a change that is based on outdated settings."""
    if expected != current:
        raise Fenced(
            ErrorCode.FENCED_EPOCH, "the configuration was changed concurrently", subject=subject
        )


CLUSTER_DECIDERS: dict[type, Callable[[CatalogueTables, Any], ClusterDecision]] = {
    commands.SetNodeConfigs: _set_node_configs,
    commands.SetGroupConfigs: _set_group_configs,
    commands.SetClientMetrics: _set_client_metrics,
    commands.SetFeatures: _set_features,
    commands.UnregisterNode: _unregister_node,
}
