"""The part of the counter that concerns topics, configuration and the cluster."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from mainstem.model.ids import TopicId
from mainstem.model.metadata import Node, Topic


class ConfigValue(Struct, frozen=True):
    """One setting as a describe call shows it."""

    name: str
    value: str | None
    source: str  # "topic", "dynamic", "static" or "default"
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


class Topics(Protocol):
    """Topics and settings. Mutating verbs return once the change is durable."""

    def by_name(self, name: str) -> Topic | None: ...
    def by_id(self, topic: TopicId) -> Topic | None: ...
    def all(self) -> Iterable[Topic]: ...
    def nodes(self) -> Sequence[Node]: ...
    def cluster_id(self) -> str: ...

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

    async def delete(self, name: str) -> None: ...

    async def add_partitions(
        self, name: str, *, total: int, validate_only: bool = False
    ) -> None: ...

    def topic_configs(self, name: str) -> Sequence[ConfigValue]: ...
    def node_configs(self) -> Sequence[ConfigValue]: ...

    async def alter_topic_configs(
        self, name: str, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> None: ...

    async def replace_topic_configs(
        self, name: str, configs: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None: ...

    async def alter_node_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> None: ...
