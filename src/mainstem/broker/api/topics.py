"""The broker API for topics and the nodes that keep them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from mainstem.broker.api.configs import Configs
from mainstem.broker.api.deleted_topics import DeletedTopics
from mainstem.model.ids import TopicId
from mainstem.model.metadata import Node, Topic


class LogDirectory(Struct, frozen=True):
    """The folder that holds a node's records, and the disk it is on."""

    path: str
    total_bytes: int
    usable_bytes: int


class Topics(Protocol):
    """Topics. Mutating operations return once the change is durable."""

    deleted: DeletedTopics  # names whose deletion clients were not informed of yet

    @property
    def configs(self) -> Configs:
        """Settings of topics, nodes, groups and subscriptions to metrics."""
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

    def log_directory(self) -> LogDirectory:
        """The data folder of this node and its disk."""
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
        """Grow a topic to ``total`` partitions; ``assignments`` lists nodes of the new ones."""
        ...
