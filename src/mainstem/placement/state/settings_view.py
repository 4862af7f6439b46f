"""The effective settings of this node: those of the topic, over those of the node.

    topic ▸ this node at run time ▸ all nodes at run time ▸ the node's configuration ▸ default

Parsed settings are cached per topic until something changes.
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
"""Source of a value."""

Origin = tuple[str, str | None, str]  # name, value, source


class SettingsView:
    """Settings of one node. ``static`` is its configuration, by node-level names."""

    def __init__(self, tables: CatalogueTables, node: NodeId, static: Mapping[str, str]) -> None:
        check_node_configs(static, dynamic=False)
        self._tables = tables
        self._node = node
        self._static = dict(static)
        self._parsed: dict[TopicId, TopicSettings] = {}

    def add_static(self, names: Mapping[str, str]) -> None:
        """Add further names to the node's configuration."""
        check_node_configs(names, dynamic=False)
        self._static.update(names)

    def on_fact(self, fact: AnyFact) -> None:
        """Drop what a fact made stale; to be subscribed before those that read settings."""
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
        """The effective settings of this node, by node-level names; defaults are left out."""
        tables = self._tables
        return {**self._static, **tables.cluster_configs(), **tables.node_configs(self._node)}

    def node_origins(self, key: ConfigKey) -> list[Origin]:
        """The sources of a node setting, the effective one in front."""
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
        """The sources of a topic setting, the effective one in front."""
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
    """The value of a topic setting in its own unit, whichever name set it."""
    name, value, _ = origin
    for synonym in key.synonyms:
        if synonym.name == name and synonym.factor != 1 and value is not None:
            return scaled(value, synonym.factor)
    return value


def as_node_configs(topic_defaults: Mapping[str, str]) -> dict[str, str]:
    """Defaults given by topic-level names, by the node-level names that supply them."""
    return {TOPIC_KEYS[name].synonyms[0].name: value for name, value in topic_defaults.items()}
