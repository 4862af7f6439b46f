"""The settings that hold on this node: what is set on a topic, over what is set on the node.

    topic ▸ this node at run time ▸ all nodes at run time ▸ the node's configuration ▸ default

Parsed settings are kept per topic until something changes, so that asking again is a look-up.
"""

from collections.abc import Mapping

from mainstem.model.config.key import ConfigKey
from mainstem.model.config.node import check_node_configs
from mainstem.model.config.topic import TOPIC_KEYS, TopicSettings, scaled, topic_settings
from mainstem.model.ids import NodeId, TopicId
from mainstem.model.metadata import Topic
from mainstem.placement.changes.commands import (
    AnyFact,
    NodeConfigsSet,
    TopicConfigsSet,
    TopicDeleted,
)
from mainstem.placement.state.tables import CatalogueTables

TOPIC, NODE, CLUSTER, STATIC, DEFAULT = "topic", "dynamic", "dynamic_default", "static", "default"
"""Where a value comes from."""

Origin = tuple[str, str | None, str]  # name, value, where it comes from


class SettingsView:
    """Settings of one node. ``static`` is its configuration, by node-level names."""

    def __init__(self, tables: CatalogueTables, node: NodeId, static: Mapping[str, str]) -> None:
        check_node_configs(static, dynamic=False)
        self._tables = tables
        self._node = node
        self._static = dict(static)
        self._parsed: dict[TopicId, TopicSettings] = {}

    def add_static(self, names: Mapping[str, str]) -> None:
        """Count further names as part of the node's configuration."""
        check_node_configs(names, dynamic=False)
        self._static.update(names)

    def on_fact(self, fact: AnyFact) -> None:
        """Forget what a fact made stale; to be subscribed before those who ask."""
        if isinstance(fact, NodeConfigsSet):
            self._parsed.clear()
        elif isinstance(fact, TopicConfigsSet | TopicDeleted):
            self._parsed.pop(fact.id, None)

    def of(self, topic: Topic) -> TopicSettings:
        """The parsed settings of a topic."""
        settings = self._parsed.get(topic.id)
        if settings is None:
            settings = topic_settings(topic.configs, self.node_level())
            self._parsed[topic.id] = settings
        return settings

    def node_level(self) -> dict[str, str]:
        """What holds on this node, by node-level names; defaults are left out."""
        tables = self._tables
        return {**self._static, **tables.cluster_configs(), **tables.node_configs(self._node)}

    def node_origins(self, key: ConfigKey) -> list[Origin]:
        """Where a node setting may come from, the one that holds in front."""
        layers = (
            (self._tables.node_configs(self._node), NODE),
            (self._tables.cluster_configs(), CLUSTER),
            (self._static, STATIC),
        )
        origins: list[Origin] = [
            (key.name, layer[key.name], source) for layer, source in layers if key.name in layer
        ]
        if key.default is not None:
            origins.append((key.name, key.default, DEFAULT))
        return origins

    def topic_origins(self, topic: Topic | None, key: ConfigKey) -> list[Origin]:
        """Where a topic setting may come from, the one that holds in front."""
        origins: list[Origin] = []
        if topic is not None and key.name in topic.configs:
            origins.append((key.name, topic.configs[key.name], TOPIC))
        layers = (
            (self._tables.node_configs(self._node), NODE),
            (self._tables.cluster_configs(), CLUSTER),
            (self._static, STATIC),
        )
        for synonym in key.synonyms:
            origins += [
                (synonym.name, layer[synonym.name], source)
                for layer, source in layers
                if synonym.name in layer
            ]
        name = key.synonyms[0].name if key.synonyms else key.name
        origins.append((name, key.default, DEFAULT))
        return origins


def topic_value(key: ConfigKey, origin: Origin) -> str | None:
    """The value of a topic setting in its own unit, whichever name it came by."""
    name, value, _ = origin
    for synonym in key.synonyms:
        if synonym.name == name and synonym.factor != 1 and value is not None:
            return scaled(value, synonym.factor)
    return value


def as_node_configs(topic_defaults: Mapping[str, str]) -> dict[str, str]:
    """Defaults given by topic-level names, by the node-level names that supply them."""
    return {TOPIC_KEYS[name].synonyms[0].name: value for name, value in topic_defaults.items()}
