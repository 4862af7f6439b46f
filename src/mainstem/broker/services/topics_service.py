"""Topics and the cluster: requests of administrators, as commands to the catalogue.

Checks that depend on the caller are here (internal topics belong to the broker, deletion may be
switched off, defaults are filled in); the catalogue validates the topic itself.
"""

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from uuid import uuid4

from mainstem.broker.api.deleted_topics import DeletedTopics
from mainstem.broker.api.topics import LogDirectory
from mainstem.broker.services.config_changes import without_nulls
from mainstem.broker.services.config_service import ConfigAdmin, NodeDefaults
from mainstem.broker.services.topic_lookup_service import (
    CONFLICTS_MAX,
    TopicLookup,
    too_many_changes,
    unknown_topic,
)
from mainstem.model import limits
from mainstem.model.config.topic import check_topic_configs
from mainstem.model.errors import ErrorCode, Fenced, InvalidRequest
from mainstem.model.ids import NodeId, TopicId
from mainstem.model.metadata import Node, Topic
from mainstem.model.topic_name import (
    GROUP_OFFSETS_TOPIC,
    MQTT_RETAINED_TOPIC,
    MQTT_SESSIONS_TOPIC,
    TRANSACTION_STATE_TOPIC,
    check_topic_name,
    is_reserved_name,
)
from mainstem.placement.changes.commands import AddPartitions, CreateTopic, DeleteTopic
from mainstem.placement.service import PlacementService
from mainstem.placement.state.settings_view import SettingsView

__all__ = ["NodeDefaults", "TopicsAdmin", "new_topic_id"]

# Settings of internal topics; but for the record size they are Kafka's.
INTERNAL_CONFIGS = {
    GROUP_OFFSETS_TOPIC: {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        # A generation of a very large group is one record.
        "max.message.bytes": "10485760",
        "segment.bytes": "104857600",
    },
    TRANSACTION_STATE_TOPIC: {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "segment.bytes": "104857600",
    },
    # A retained message is as large as MQTT's largest packet may be.
    MQTT_SESSIONS_TOPIC: {"cleanup.policy": "compact", "max.message.bytes": "10485760"},
    MQTT_RETAINED_TOPIC: {
        "cleanup.policy": "compact",
        "max.message.bytes": str(limits.BATCH_BYTES_MAX),
    },
}


INTERNAL_REPLICAS = 3


def new_topic_id() -> TopicId:
    """A new topic id."""
    return TopicId(uuid4().bytes)


class TopicsAdmin:
    """The ``Topics`` of one node. ``node`` is replaced once the listener's port is known."""

    def __init__(
        self,
        placement: PlacementService,
        node: Node,
        defaults: NodeDefaults,
        new_id: Callable[[], TopicId] = new_topic_id,
    ) -> None:
        self.node = node
        self._placement = placement
        self._catalogue = placement.catalogue
        self._defaults = defaults
        self._new_id = new_id
        self._lookup = TopicLookup(placement)
        self._settings = SettingsView(placement.catalogue, node.id, defaults.static)
        placement.subscribe(self._settings.on_fact)
        self.configs = ConfigAdmin(
            placement, self._lookup, self._settings, node.id, defaults.static
        )
        self.deleted = DeletedTopics()
        placement.subscribe(self.deleted.on_fact)

    def by_name(self, name: str) -> Topic | None:
        """The topic with that name."""
        return self._catalogue.topic(name)

    def by_id(self, topic: TopicId) -> Topic | None:
        """The topic with that id."""
        return self._catalogue.topic_by_id(topic)

    def all(self) -> Iterable[Topic]:
        """Every topic."""
        return self._catalogue.topics()

    def group_texts(self, group: str) -> Mapping[str, str]:
        """What is set on a consumer group."""
        return self.configs.groups.texts(group)

    def nodes(self) -> Sequence[Node]:
        """Every node that is not declared dead, this one with its current address."""
        others = [
            known.node
            for known in self._catalogue.nodes()
            if known.node.id != self.node.id and not known.fenced
        ]
        return sorted([self.node, *others], key=lambda node: node.id)

    def cluster_id(self) -> str:
        """The cluster's name."""
        return self._catalogue.cluster_id

    def partition_count(self, name: str) -> int:
        """How many partitions a topic has; 0 without such a topic."""
        topic = self._catalogue.topic(name)
        return 0 if topic is None else len(topic.streams)

    def log_directory(self) -> LogDirectory:
        """The data folder of this node and its disk."""
        path = self._defaults.static.get("log.dirs", ".")
        usage = shutil.disk_usage(path)
        return LogDirectory(path, usage.total, usage.free)

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
        check_topic_name(name)
        if is_reserved_name(name):
            raise _internal(name, "created")
        given = None if assignments is None else _in_order(assignments)
        texts = without_nulls(configs)
        check_topic_configs(texts, self._settings.node_level())
        command = CreateTopic(
            id=self._new_id(),
            name=name,
            partitions=self._defaults.partitions if partitions == -1 else partitions,
            replication_factor=(
                self._default_replicas() if replication_factor == -1 else replication_factor
            ),
            configs=texts,
            assignments=given,
        )
        return await self._lookup.decide(command, validate_only=validate_only)

    async def ensure(self, name: str) -> Topic:
        """The topic, created with defaults when auto-creation allows it."""
        topic = self._catalogue.topic(name)
        if topic is not None:
            return topic
        check_topic_name(name)
        if not self._defaults.auto_create:
            raise unknown_topic(name)
        if name == GROUP_OFFSETS_TOPIC:
            await self.ensure_offsets_topic()
        elif is_reserved_name(name):
            raise unknown_topic(name)
        else:
            await self._create_unless_there(CreateTopic(
                self._new_id(), name, self._defaults.partitions, self._default_replicas()
            ))  # fmt: skip
        return await self._lookup.found(name)

    async def ensure_internal(self, name: str) -> None:
        """Create an internal topic if it does not exist."""
        if name == GROUP_OFFSETS_TOPIC:
            await self.ensure_offsets_topic()
        else:
            await self.ensure_transactions_topic()

    async def ensure_offsets_topic(self) -> None:
        """Create the internal topic of groups and offsets if it does not exist."""
        await self._ensure_internal(GROUP_OFFSETS_TOPIC, self._defaults.offsets_partitions)

    async def ensure_transactions_topic(self) -> None:
        """Create the internal topic of transactions if it does not exist."""
        await self._ensure_internal(TRANSACTION_STATE_TOPIC, self._defaults.transactions_partitions)

    async def delete(self, name: str) -> None:
        """Delete a topic and its records."""
        topic = await self._lookup.found(name)
        if topic.internal:
            raise _internal(name, "deleted")
        if not self._defaults.delete_enabled:
            raise InvalidRequest(
                ErrorCode.POLICY_VIOLATION, "deletion of topics is switched off", subject=name
            )
        await self._placement.submit(DeleteTopic(topic.id))

    async def add_partitions(
        self,
        name: str,
        *,
        total: int,
        assignments: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Grow a topic to ``total`` partitions; ``assignments`` lists nodes of the new ones."""
        given = None
        if assignments is not None:
            given = tuple(tuple(NodeId(node) for node in nodes) for nodes in assignments)
        for _ in range(CONFLICTS_MAX):
            topic = await self._lookup.found(name)
            if topic.internal:
                raise _internal(name, "given partitions")
            count = len(topic.streams)
            if given is not None and total > count and len(given) != total - count:
                raise InvalidRequest(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"{len(given)} assignments for {total - count} new partitions",
                    subject=name,
                )
            command = AddPartitions(topic.id, count, total, given)
            try:
                await self._lookup.decide(command, validate_only=validate_only)
            except Fenced:  # partitions were added that this node has not replayed yet: check again
                await self._lookup.catch_up()
                continue
            return
        raise too_many_changes(name)

    def _default_replicas(self) -> int:
        return min(self._defaults.replication_factor, len(self.nodes()))

    async def _ensure_internal(self, name: str, partitions: int) -> None:
        if self._catalogue.topic(name) is None:
            command = CreateTopic(
                self._new_id(),
                name,
                partitions,
                replication_factor=min(INTERNAL_REPLICAS, len(self.nodes())),
                configs=INTERNAL_CONFIGS[name],
                internal=True,
            )
            await self._create_unless_there(command)

    async def _create_unless_there(self, command: CreateTopic) -> None:
        try:
            await self._placement.submit(command)
        except InvalidRequest as error:
            if error.code is not ErrorCode.TOPIC_EXISTS:
                raise


def _internal(name: str, what: str) -> InvalidRequest:
    return InvalidRequest(
        ErrorCode.INVALID_REQUEST, f"internal topic {name} may not be {what}", subject=name
    )


def _in_order(assignments: Mapping[int, Sequence[int]]) -> tuple[tuple[NodeId, ...], ...]:
    """Assignments by partition number, which must count up from 0."""
    if sorted(assignments) != list(range(len(assignments))):
        raise InvalidRequest(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "assigned partitions must be numbered from 0 without gaps",
        )
    return tuple(
        tuple(NodeId(node) for node in assignments[partition]) for partition in sorted(assignments)
    )
