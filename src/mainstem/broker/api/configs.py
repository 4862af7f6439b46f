"""The broker API for settings: of topics, nodes, groups and subscriptions to clients' metrics."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from mainstem.model.config.topic import TopicSettings
from mainstem.model.ids import NodeId
from mainstem.model.metadata import Topic


class ConfigValue(Struct, frozen=True):
    """One setting as a describe call shows it.

    ``source`` is "topic", "group", "client_metrics", "dynamic" (this node, at run time),
    "dynamic_default" (all nodes, at run time), "static" (the node's configuration) or "default".
    """

    name: str
    value: str | None
    source: str
    type: str  # "boolean", "string", "int", "short", "long", "double", "list", "class", "password"
    read_only: bool = False
    sensitive: bool = False
    documentation: str = ""
    synonyms: tuple[tuple[str, str | None, str], ...] = ()  # (name, value, source)


class ConfigChange(Struct, frozen=True):
    """One incremental change: operation is "set", "delete", "append" or "subtract"."""

    name: str
    operation: str
    value: str | None = None


class ConfigsByName(Protocol):
    """Settings stored under a name: of groups, of subscriptions to metrics."""

    def names(self) -> Sequence[str]:
        """Every name that has settings of its own."""
        ...

    def describe(self, name: str, /) -> Sequence[ConfigValue]:
        """Every setting under a name and its source."""
        ...

    async def alter(
        self, name: str, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """Change some of what is set under a name."""
        ...

    async def replace(
        self, name: str, configs: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Replace all settings under a name with ``configs``."""
        ...


class Configs(Protocol):
    """Settings of topics and nodes. Mutating operations return once the change is durable."""

    @property
    def groups(self) -> ConfigsByName:
        """Settings of consumer groups."""
        ...

    @property
    def client_metrics(self) -> ConfigsByName:
        """Settings of subscriptions to clients' metrics."""
        ...

    def settings_of(self, topic: Topic) -> TopicSettings:
        """Every setting of a topic, parsed."""
        ...

    def describe_topic(self, name: str) -> Sequence[ConfigValue]:
        """Every setting of a topic and its source."""
        ...

    def describe(self, topic: Topic) -> Sequence[ConfigValue]:
        """The same for a given topic, which may have been only validated."""
        ...

    def describe_node(self, node: NodeId | None) -> Sequence[ConfigValue]:
        """Every setting of this node; None: those made at run time for all nodes."""
        ...

    async def alter_topic(
        self, name: str, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """Change some of what is set on a topic."""
        ...

    async def replace_topic(
        self, name: str, configs: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Replace all settings of a topic with ``configs``."""
        ...

    async def alter_node(
        self,
        node: NodeId | None,
        changes: Sequence[ConfigChange],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change some of what is set at run time on a node, or on all of them (None)."""
        ...

    async def replace_node(
        self,
        node: NodeId | None,
        configs: Mapping[str, str | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Replace all run-time settings of a node, or of all nodes (None), with ``configs``."""
        ...
