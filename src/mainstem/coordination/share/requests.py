"""Requests and answers of share groups (KIP-932): plain values, no behaviour.

Ranges of offsets are half-open. Errors that concern the whole request are raised; those of one
partition are part of its answer.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from enum import IntEnum

from msgspec import Struct

from mainstem.coordination.consumer.facts import NOTHING, Partitions
from mainstem.coordination.consumer.requests import sees_all_topics
from mainstem.model.errors import MainstemError
from mainstem.model.ids import NO_TOPIC_ID, StreamId, TopicId

SESSION_FINAL = -1
SESSION_FIRST = 0
UNKNOWN_OFFSET = -1
UNKNOWN_LAG = -1


class AckType(IntEnum):
    """Type of an acknowledgement; the numbers are Kafka's."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class ShareHeartbeat(Struct, frozen=True, kw_only=True):
    """Heartbeat of a member. Omitted fields (None) are unchanged.

    ``epoch`` 0 joins, -1 leaves. Members generate their own ids.
    """

    group_id: str
    member_id: str
    epoch: int
    rack_id: str | None = None
    topics: tuple[str, ...] | None = None
    client_id: str = ""
    client_host: str = ""


class ShareAnswer(Struct, frozen=True):
    """The epoch of a member; its partitions if they changed or were requested."""

    member_id: str
    epoch: int
    heartbeat_interval_ms: int = 0
    assigned: Partitions | None = None


class DescribedShareMember(Struct, frozen=True):
    """Description of one member."""

    member_id: str
    rack_id: str | None
    epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    assigned: Partitions = NOTHING


class DescribedShareGroup(Struct, frozen=True):
    """Description of a share group."""

    group_id: str
    state: str
    epoch: int
    target_epoch: int
    assignor: str
    members: tuple[DescribedShareMember, ...]


class AckRange(Struct, frozen=True):
    """Acknowledgement of the records in [start, until): one type for all, or one for each."""

    start: int
    until: int
    types: tuple[int, ...]


class AcquiredRange(Struct, frozen=True):
    """Records [start, until) acquired by a member, delivered for the ``delivery_count``-th time."""

    start: int
    until: int
    delivery_count: int


Acknowledgements = Mapping[StreamId, Sequence[AckRange]]


class ShareFetchCall(Struct, frozen=True, kw_only=True):
    """ShareFetch: a member acknowledges records and fetches more.

    Attributes:
        session_epoch: 0 opens a session, -1 closes it and releases what is not acknowledged.
        named: every partition in the request: they are added to the session; those of an opening
            request form it. In a closing request they only carry acknowledgements.
        forgotten: partitions that leave the session.
        acknowledgements: by partition, in the order of the request.
        max_records: approximate limit; never exceeded if ``strict`` (share.acquire.mode).
        batch_size: acquired ranges are cut at batch boundaries near that many records.
        renews: the request only acknowledges and extends locks, nothing is fetched (KIP-1222).
        connection: the client's connection; ``disconnected`` releases what it has acquired.
        may_read: whether the caller may read the topic of that name.
    """

    group_id: str
    member_id: str
    session_epoch: int
    named: tuple[StreamId, ...] = ()
    forgotten: tuple[StreamId, ...] = ()
    acknowledgements: Acknowledgements = {}
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 2**31 - 1
    max_records: int = 0
    batch_size: int = 0
    strict: bool = False
    renews: bool = False
    connection: Hashable = None
    may_read: Callable[[str], bool] = sees_all_topics


class ShareFetched(Struct, frozen=True):
    """Result of one partition: complete batches, of which the member may use only acquired records.

    A partition without changes (no records, no acknowledgements, no error) is omitted.
    """

    stream: StreamId
    records: bytes = b""
    acquired: Sequence[AcquiredRange] = ()
    error: MainstemError | None = None
    acknowledge_error: MainstemError | None = None


class ShareFetchAnswer(Struct, frozen=True):
    """Result of a fetch, and how long the acquired records are locked."""

    lock_timeout_ms: int
    partitions: Sequence[ShareFetched]


class ShareAcknowledgeCall(Struct, frozen=True, kw_only=True):
    """ShareAcknowledge: without a fetch; ``session_epoch`` -1 also closes the session."""

    group_id: str
    member_id: str
    session_epoch: int
    acknowledgements: Acknowledgements = {}
    renews: bool = False
    connection: Hashable = None
    may_read: Callable[[str], bool] = sees_all_topics


class ShareAcknowledgeAnswer(Struct, frozen=True):
    """The error, or None, of every partition in the order of the request."""

    lock_timeout_ms: int
    partitions: Sequence[tuple[StreamId, MainstemError | None]]


class ShareOffset(Struct, frozen=True):
    """Start offset and lag of a group in a partition.

    ``start_offset`` is ``UNKNOWN_OFFSET`` if the group has not read anything yet; ``lag`` counts
    records that are not finished.
    """

    topic: str
    partition: int
    topic_id: TopicId = NO_TOPIC_ID
    start_offset: int = UNKNOWN_OFFSET
    leader_epoch: int = 0
    lag: int = UNKNOWN_LAG
    error: MainstemError | None = None


class ShareOffsetToAlter(Struct, frozen=True):
    """New start offset of a group in a partition."""

    topic: str
    partition: int
    start_offset: int


class ShareOffsetsDeleted(Struct, frozen=True):
    """The outcome of deleting the offsets of a group in a topic."""

    topic: str
    topic_id: TopicId = NO_TOPIC_ID
    error: MainstemError | None = None
