"""Values that the client returns: offsets, records, nodes, topics, groups. No behaviour."""

from typing import NamedTuple

from msgspec import Struct

from mainstem.model.records.record import Header


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class RecordMetadata(NamedTuple):
    """Partition and offset of a stored record; the offset is -1 without acknowledgement."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class ConsumerRecord(NamedTuple):
    """One record as read; ``timestamp`` is in milliseconds since 1970."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class NodeInfo(Struct, frozen=True):
    """One node as the cluster describes it."""

    id: int
    host: str
    port: int
    rack: str | None = None


class PartitionInfo(Struct, frozen=True):
    """One partition: leader (-1: none now), leader epoch and replicas."""

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...] = ()


class TopicInfo(Struct, frozen=True):
    """One topic and its partitions by index."""

    name: str
    id: bytes
    partitions: dict[int, PartitionInfo]
    is_internal: bool = False


class ClusterInfo(Struct, frozen=True):
    """The cluster as a whole."""

    id: str | None
    controller: int
    nodes: tuple[NodeInfo, ...]


class ConfigEntry(Struct, frozen=True):
    """One setting of a topic or node, and where its value comes from."""

    name: str
    value: str | None
    source: str
    is_read_only: bool = False
    is_sensitive: bool = False
    documentation: str | None = None


class OffsetAndTime(NamedTuple):
    """Result of an offset query; both are -1 if there is none."""

    offset: int
    timestamp: int


class CommittedOffset(NamedTuple):
    """The committed offset of a group in one partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class MemberInfo(Struct, frozen=True):
    """One member of a group and its partitions."""

    id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]


class GroupInfo(Struct, frozen=True):
    """One group as its coordinator describes it."""

    id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[MemberInfo, ...]
    coordinator: NodeInfo


class GroupListing(Struct, frozen=True):
    """One line of the list of groups."""

    id: str
    state: str
    protocol_type: str
    type: str = ""


class LogDirPartition(Struct, frozen=True):
    """The size of one partition in one log directory."""

    topic: str
    partition: int
    size_bytes: int
    offset_lag: int


class LogDir(Struct, frozen=True):
    """One log directory of one node."""

    node: int
    path: str
    total_bytes: int
    usable_bytes: int
    partitions: tuple[LogDirPartition, ...]
