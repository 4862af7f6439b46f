"""Settings of topics and nodes: described with their source, and changed at run time.

A change is computed from what is set now and refused by the catalogue if that has changed
meanwhile; then it is computed again.
"""

from collections.abc import Callable, Mapping, Sequence

from mainstem.broker.api.configs import ConfigChange, ConfigValue
from mainstem.broker.services.client_metrics_config_service import ClientMetricsConfigAdmin
from mainstem.broker.services.config_changes import changed, without_nulls
from mainstem.broker.services.group_config_service import GroupConfigAdmin
from mainstem.broker.services.topic_lookup_service import (
    CONFLICTS_MAX,
    TopicLookup,
    too_many_changes,
)
from mainstem.model.config.key import ConfigKey
from mainstem.model.config.node import NODE_KEYS, parse_node_config, unknown_node_key
from mainstem.model.config.topic import (
    SETTABLE_KEYS,
    TOPIC_KEYS,
    TopicSettings,
    check_topic_configs,
)
from mainstem.model.errors import ErrorCode, Fenced, InvalidRequest
from mainstem.model.ids import NodeId
from mainstem.model.metadata import Topic
from mainstem.model.topic_name import KAFKA_INTERNAL_TOPICS
from mainstem.placement.changes.commands import SetNodeConfigs, SetTopicConfigs
from mainstem.placement.service import PlacementService
from mainstem.placement.state.settings_view import CLUSTER, DEFAULT, SettingsView, topic_value

INTERNAL_PARTITIONS = "50"
_DELETING_KEYS = ("cleanup.policy", "retention.ms", "retention.bytes")


class NodeDefaults:
    """A node's own configuration, by Kafka's node-level names, and what topics get from it."""

    def __init__(self, static: Mapping[str, str]) -> None:
        self.static = dict(static)
        self.auto_create = bool(parse_node_config("auto.create.topics.enable", static))
        self.delete_enabled = bool(parse_node_config("delete.topic.enable", static))
        self.partitions = int(static.get("num.partitions", "1"))
        self.replication_factor = int(static.get("default.replication.factor", "1"))
        self.offsets_partitions = int(
            static.get("offsets.topic.num.partitions", INTERNAL_PARTITIONS)
        )
        self.transactions_partitions = int(
            static.get("transaction.state.log.num.partitions", INTERNAL_PARTITIONS)
        )


class ConfigAdmin:
    """The ``Configs`` of one node."""

    def __init__(
        self,
        placement: PlacementService,
        lookup: TopicLookup,
        settings: SettingsView,
        node: NodeId,
        static: Mapping[str, str],
    ) -> None:
        self._catalogue = placement.catalogue
        self._lookup = lookup
        self._settings = settings
        self._node = node
        self.groups = GroupConfigAdmin(placement, static)
        self.client_metrics = ClientMetricsConfigAdmin(placement)

    def listening(self, names: Mapping[str, str]) -> None:
        """Add values that are known only once the node listens."""
        self._settings.add_static(names)

    def settings_of(self, topic: Topic) -> TopicSettings:
        """Every setting of a topic, parsed."""
        return self._settings.of(topic)

    def describe_topic(self, name: str) -> Sequence[ConfigValue]:
        """Every setting of a topic and its source."""
        return self.describe(self._lookup.need(name))

    def describe(self, topic: Topic) -> Sequence[ConfigValue]:
        """The same for a given topic."""
        return [_topic_config(self._settings, topic, key) for key in TOPIC_KEYS.values()]

    def describe_node(self, node: NodeId | None) -> Sequence[ConfigValue]:
        """Every setting of this node; None: those made at run time for all nodes."""
        self._check_node(node)
        if node is None:
            texts = self._catalogue.cluster_configs()
            return [
                ConfigValue(name, text, CLUSTER, NODE_KEYS[name].type,
                            documentation=NODE_KEYS[name].documentation,
                            synonyms=((name, text, CLUSTER),))
                for name, text in texts.items()
            ]  # fmt: skip
        shown = [_node_config(self._settings, key) for key in NODE_KEYS.values()]
        return [config for config in shown if config is not None]

    async def alter_topic(
        self, name: str, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """Change some of what is set on a topic."""
        await self._set_topic_configs(
            name,
            lambda topic: changed(
                topic.configs,
                changes,
                SETTABLE_KEYS,
                lambda key: _topic_config(self._settings, topic, key).value,
            ),
            validate_only=validate_only,
        )

    async def replace_topic(
        self, name: str, configs: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Replace all settings of a topic with ``configs``."""
        texts = without_nulls(configs)
        await self._set_topic_configs(name, lambda _: texts, validate_only=validate_only)

    async def alter_node(
        self,
        node: NodeId | None,
        changes: Sequence[ConfigChange],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change some of what is set at run time on a node, or on all of them (None)."""

        def after(before: Mapping[str, str]) -> dict[str, str]:
            return changed(before, changes, NODE_KEYS, self._node_text, unknown_node_key)

        await self._set_node_configs(node, after, validate_only=validate_only)

    async def replace_node(
        self,
        node: NodeId | None,
        configs: Mapping[str, str | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Replace all run-time settings of a node, or of all nodes (None), with ``configs``."""
        texts = without_nulls(configs)
        await self._set_node_configs(node, lambda _: texts, validate_only=validate_only)

    async def _set_topic_configs(
        self, name: str, after: Callable[[Topic], dict[str, str]], *, validate_only: bool
    ) -> None:
        for _ in range(CONFLICTS_MAX):
            topic = await self._lookup.found(name)
            configs = after(topic)
            _check_internal(topic, configs)
            check_topic_configs(configs, self._settings.node_level(), kept=topic.configs)
            if configs == topic.configs:
                return
            command = SetTopicConfigs(topic.id, topic.configs, configs)
            try:
                await self._lookup.decide(command, validate_only=validate_only)
            except Fenced:  # this node has not replayed the last change yet
                await self._lookup.catch_up()
                continue
            return
        raise too_many_changes(name)

    async def _set_node_configs(
        self,
        node: NodeId | None,
        after: Callable[[Mapping[str, str]], dict[str, str]],
        *,
        validate_only: bool,
    ) -> None:
        self._check_node(node)
        catalogue = self._catalogue
        for _ in range(CONFLICTS_MAX):
            before = catalogue.cluster_configs() if node is None else catalogue.node_configs(node)
            command = SetNodeConfigs(node, dict(before), after(before))
            if command.expected == command.configs:
                return
            try:
                await self._lookup.decide(command, validate_only=validate_only)
            except Fenced:  # this node has not replayed the last change yet
                await self._lookup.catch_up()
                continue
            return
        raise too_many_changes(f"node {node}")

    def _node_text(self, key: ConfigKey) -> str | None:
        origins = self._settings.node_origins(key)
        return origins[0][1] if origins else None

    def _check_node(self, node: NodeId | None) -> None:
        if node is not None and node != self._node:
            raise InvalidRequest(
                ErrorCode.INVALID_REQUEST,
                f"this is node {self._node}, the request is for node {node}",
                remedy="send it to that node, or use the empty name for all nodes",
            )


def _topic_config(settings: SettingsView, topic: Topic, key: ConfigKey) -> ConfigValue:
    origins = settings.topic_origins(topic, key)
    return ConfigValue(
        name=key.name,
        value=topic_value(key, origins[0]),
        source=origins[0][2],
        type=key.type,
        documentation=key.documentation,
        # As in Kafka: a default that has several names is listed under none of them.
        synonyms=tuple(
            origin for origin in origins if origin[2] != DEFAULT or len(key.synonyms) == 1
        ),
    )


def _node_config(settings: SettingsView, key: ConfigKey) -> ConfigValue | None:
    """A node setting; None for one that this node was not started with and has no default for."""
    origins = settings.node_origins(key)
    if not origins and not key.nullable:
        return None
    return ConfigValue(
        name=key.name,
        value=origins[0][1] if origins else None,
        source=origins[0][2] if origins else DEFAULT,
        type=key.type,
        read_only=key.read_only,
        documentation=key.documentation,
        synonyms=tuple(origins),
    )


def _check_internal(topic: Topic, configs: Mapping[str, str]) -> None:
    """Refuse settings of internal topics that would delete records the node needs."""
    if not topic.internal or topic.name in KAFKA_INTERNAL_TOPICS:
        return
    for name in _DELETING_KEYS:
        if topic.configs.get(name) != configs.get(name):
            raise InvalidRequest(
                ErrorCode.POLICY_VIOLATION,
                f"{name} of internal topic {topic.name} may not be changed",
                subject=topic.name,
            )
