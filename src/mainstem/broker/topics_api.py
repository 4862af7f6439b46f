"""The part of the counter that concerns topics, configuration and the cluster."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from mainstem.broker.deleted_topics import DeletedTopics
from mainstem.model.ids import NodeId, TopicId
from mainstem.model.metadata import Node, Topic
from mainstem.model.topic_config import TopicSettings


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


class LogDirectory(Struct, frozen=True):
    """The folder that holds a node's records, and the disk it is on."""

    path: str
    total_bytes: int
    usable_bytes: int


class NamedConfigs(Protocol):
    """Settings of names that are nothing else to this node: groups, subscriptions to metrics."""

    def names(self) -> Sequence[str]:
        """Every name that has settings of its own."""
        ...

    def describe(self, name: str, /) -> Sequence[ConfigValue]:
        """Every setting under a name and where it comes from."""
        ...

    async def alter(
        self, name: str, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """Change some of what is set under a name."""
        ...

    async def replace(
        self, name: str, configs: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Let ``configs`` be all that is set under a name."""
        ...


class Topics(Protocol):
    """Topics and settings. Mutating verbs return once the change is durable."""

    deleted: DeletedTopics  # names that clients have yet to be told of

    @property
    def of_groups(self) -> NamedConfigs:
        """Settings of consumer groups."""
        ...

    @property
    def of_client_metrics(self) -> NamedConfigs:
        """Settings of subscriptions to clients' metrics."""
        ...

    def by_name(self, name: str) -> Topic | None:
        """The topic with that name."""
        ...

    def by_id(self, topic: TopicId) -> Topic | None:
        """The topic with that id."""
        ...

    def all(self) -> Iterable[Topic]:
        """Every topic; not to be held over an ``await``."""
        ...

    def nodes(self) -> Sequence[Node]:
        """Every node of the cluster that can be reached."""
        ...

    def cluster_id(self) -> str:
        """The cluster's name."""
        ...

    def settings_of(self, topic: Topic) -> TopicSettings:
        """Every setting of a topic, parsed."""
        ...

    def log_directory(self) -> LogDirectory:
        """Where this node's records are."""
        ...

    async def create(
        self,
        name: str,
        *,
        partitions: int,
        replication_factor: int,
        configs: Mapping[str, str | None],
        assignments: Mapping[int, Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> Topic:
        """Create a topic; -1 partitions or replicas mean the default."""
        ...

    async def ensure(self, name: str) -> Topic:
        """The topic, created with defaults when auto-creation allows it."""
        ...

    async def delete(self, name: str) -> None:
        """Delete a topic and its records."""
        ...

    async def add_partitions(
        self,
        name: str,
        *,
        total: int,
        assignments: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Let a topic have ``total`` partitions; ``assignments`` lists nodes of the new ones."""
        ...

    def topic_configs(self, name: str) -> Sequence[ConfigValue]:
        """Every setting of a topic and where it comes from."""
        ...

    def configs_of(self, topic: Topic) -> Sequence[ConfigValue]:
        """The same for a topic at hand, which may be one that was only validated."""
        ...

    def node_configs(self, node: NodeId | None) -> Sequence[ConfigValue]:
        """Every setting of this node; None: those made at run time for all nodes."""
        ...

    async def alter_topic_configs(
        self, name: str, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """Change some of what is set on a topic."""
        ...

    async def replace_topic_configs(
        self, name: str, configs: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Let ``configs`` be all that is set on a topic."""
        ...

    async def alter_node_configs(
        self,
        node: NodeId | None,
        changes: Sequence[ConfigChange],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change some of what is set at run time on a node, or on all of them (None)."""
        ...

    async def replace_node_configs(
        self,
        node: NodeId | None,
        configs: Mapping[str, str | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Let ``configs`` be all that is set at run time on a node, or on all of them (None)."""
        ...
