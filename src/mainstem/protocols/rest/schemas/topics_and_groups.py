"""Bodies of the routes about topics, messages, groups and the node.

Responses are encoded from these types, requests are decoded into them, and the OpenAPI document is
written from them, so the three cannot differ. Field names are those of StrikeMQ's REST interface
where it has the field.
"""

from typing import Annotated

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from mainstem.model.limits import PARTITIONS_PER_TOPIC_MAX

TIMESTAMP_MAX = 2**63 - 1

Encoding = Annotated[
    str, Meta(pattern="^(text|base64)$", description="Encoding of the bytes: text or base64.")
]
PartitionNumber = Annotated[
    int, Meta(ge=0, lt=PARTITIONS_PER_TOPIC_MAX, description="Number of the partition, from 0.")
]
Timestamp = Annotated[
    int, Meta(ge=0, le=TIMESTAMP_MAX, description="Milliseconds since 1970, UTC.")
]


def _absent() -> Raw:
    return Raw(b"null")


class BrokerAnswer(Struct, frozen=True, kw_only=True):
    """This node."""

    version: str
    broker_id: int
    uptime_seconds: float
    port: Annotated[int, Meta(description="Port of the Kafka listener.")]
    http_port: int
    io_threads: Annotated[int, Meta(description="Threads that write to the disk.")]
    platform: str
    log_dir: str
    segment_size: Annotated[int, Meta(description="Default size of a segment, in bytes.")]
    cluster_id: str
    host: Annotated[str, Meta(description="Host of the Kafka listener.")]
    http_host: str


class TopicLine(Struct, frozen=True, kw_only=True):
    """One topic in the list. Offsets are summed over its partitions."""

    name: str
    partitions: int
    start_offset: int
    end_offset: int
    topic_id: str
    internal: bool


class PartitionAnswer(Struct, frozen=True, kw_only=True):
    """One partition: the offsets it holds are [start_offset, end_offset)."""

    partition: int
    start_offset: int
    end_offset: int
    epoch: int
    leader: Annotated[int, Meta(description="Node that writes the partition.")]
    size_bytes: int


class TopicAnswer(Struct, frozen=True, kw_only=True):
    """One topic in full. ``configs`` has the settings of the topic, without defaults.

    It is null if the caller may see the topic but not its settings.
    """

    name: str
    partitions: list[PartitionAnswer]
    topic_id: str
    internal: bool
    created_ms: int
    configs: dict[str, str] | None


class TopicRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The desired topic; a field that is left out is unchanged, or the default."""

    partitions: Annotated[int, Meta(ge=1, le=PARTITIONS_PER_TOPIC_MAX)] | None = None
    replication_factor: Annotated[int, Meta(ge=1, le=32767)] | None = None
    configs: Annotated[
        dict[str, str | int | float | bool | None],
        Meta(description="Settings by Kafka's names; null resets one to its default."),
    ] = {}


class NewTopicRequest(TopicRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A topic to create; refused if a topic of that name exists."""

    name: str


class TopicDeleted(Struct, frozen=True, kw_only=True):
    """The deleted topic."""

    deleted: str
    partitions_removed: int


class HeaderAnswer(Struct, frozen=True, kw_only=True, gc=False):
    """One header of a message."""

    name: str
    value: str | None
    encoding: Encoding = "text"


class MessageAnswer(Struct, frozen=True, kw_only=True, gc=False):
    """One stored message. It can be posted again and stores the same key, value and headers."""

    offset: int
    timestamp: int
    key: str | None
    value: str | None
    partition: int
    key_encoding: Encoding
    value_encoding: Encoding
    headers: list[HeaderAnswer]


class HeaderRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """One header to store."""

    name: str
    value: str | None
    encoding: Encoding = "text"


class MessageRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """One message to store.

    Key and value are text, or bytes in base64 if the encoding is base64; a value that is an
    object, an array, a number or a boolean is stored as the JSON text that was sent. ``offset``
    is ignored; it is accepted so that a message that was read can be posted.
    """

    value: Annotated[Raw, Meta(description="Text, base64, any JSON, or null for a tombstone.")]
    key: Annotated[Raw, Meta(description="As value; without one any partition may be chosen.")] = (
        field(default_factory=_absent)
    )
    key_encoding: Encoding = "text"
    value_encoding: Encoding = "text"
    headers: dict[str, str | None] | list[HeaderRequest] = []
    partition: PartitionNumber | None = None
    timestamp: Timestamp | None = None
    offset: int | UnsetType = UNSET


class MessagesRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Messages to store, in this order in each partition."""

    messages: Annotated[list[MessageRequest], Meta(min_length=1)]
    partition: PartitionNumber | None = None


class StoredPart(Struct, frozen=True):
    """Consecutive messages of one partition: their first offset, or why they were refused."""

    partition: int
    record_count: int
    base_offset: int | None
    code: str | None = None
    cause: str | None = None


class PlaceAnswer(Struct, frozen=True, gc=False):
    """Partition and offset of one stored message."""

    partition: int
    offset: int


class MessagesStored(Struct, frozen=True, kw_only=True):
    """The messages are stored as durably as their topic requires.

    ``partition`` and ``base_offset`` are those of the first message; ``offsets`` has partition
    and offset of every message, in the order of the request.
    """

    topic: str
    partition: int
    base_offset: int
    record_count: int
    offsets: list[PlaceAnswer]


class PartlyStored(Struct, frozen=True, kw_only=True):
    """Not all messages were stored; ``parts`` lists what was."""

    code: str
    cause: str
    subject: str
    remedy: str
    parts: list[StoredPart]


class GroupLine(Struct, frozen=True, kw_only=True):
    """One group in the list; ``type`` is classic, consumer or share."""

    group_id: str
    type: str
    state: str
    generation_id: int
    member_count: int
    protocol_type: str


class MemberAnswer(Struct, frozen=True, kw_only=True):
    """One member of a group."""

    member_id: str
    client_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    client_host: str
    instance_id: str | None


class PositionAnswer(Struct, frozen=True, kw_only=True):
    """Progress of a group in one partition; the end is null if no node reports it in time."""

    topic: str
    partition: int
    committed_offset: int
    end_offset: int | None
    lag: int | None
    metadata: str


class GroupAnswer(Struct, frozen=True, kw_only=True):
    """One group in full; the keys of ``committed_offsets`` are ``topic-partition``.

    The offset of a share group is that of its first record that is not completed.
    """

    group_id: str
    type: str
    state: str
    generation_id: int
    protocol_type: str
    protocol_name: str
    leader_id: str
    members: list[MemberAnswer]
    committed_offsets: dict[str, int]
    positions: list[PositionAnswer]
    total_lag: int


class GroupDeleted(Struct, frozen=True, kw_only=True):
    """The deleted group."""

    deleted: str


class Probe(Struct, frozen=True):
    """The response to a probe of liveness or readiness."""

    status: str
