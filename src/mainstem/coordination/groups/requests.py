"""Requests to a group coordinator and its answers: plain values, no behaviour.

Errors are ``MainstemError``s. Where one request concerns many items (partitions, members), the
answer lists an ``ErrorCode`` or None for each of them, in the order of the request.
"""

from msgspec import Struct

from mainstem.model.errors import ErrorCode

NO_OFFSET = -1
NO_EPOCH = -1
NO_GENERATION = -1
DEFAULT_RETENTION = -1


class JoinRequest(Struct, frozen=True, kw_only=True):
    """JoinGroup: a member takes part in the next generation.

    ``protocols`` are (name, metadata) in the order the member prefers. Clients that support the
    two-step join (KIP-394) set ``id_required``; those that support ``skip_assignment`` (KIP-814)
    set ``may_skip_assignment``.
    """

    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    member_id: str = ""
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    id_required: bool = False
    may_skip_assignment: bool = False


class JoinedMember(Struct, frozen=True):
    """A member as sent to the leader, which assigns partitions."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinAnswer(Struct, frozen=True):
    """The generation a member belongs to; only its leader gets the list of members."""

    member_id: str
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


class SyncRequest(Struct, frozen=True, kw_only=True):
    """SyncGroup: a member requests its assignment; the leader sends those of all members."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


class SyncAnswer(Struct, frozen=True):
    """Assignment of a member in this generation."""

    protocol_type: str | None
    protocol_name: str | None
    assignment: bytes


class HeartbeatRequest(Struct, frozen=True, kw_only=True):
    """Heartbeat of a member."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None


class LeavingMember(Struct, frozen=True):
    """Member that leaves: by member id, or by instance id when an administrator removes it."""

    member_id: str
    instance_id: str | None = None


class CommittedOffset(Struct, frozen=True):
    """A committed offset. ``expire_ms`` is -1 unless an old client set its own expiry time."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    commit_ms: int = 0
    expire_ms: int = -1


class OffsetToCommit(Struct, frozen=True):
    """One offset of a commit."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""


class CommitRequest(Struct, frozen=True, kw_only=True):
    """Offsets to commit for a group.

    Without a generation the caller is no member: a consumer that assigns partitions itself, or a
    tool. ``reports_unknown_group`` is set by clients that understand that error.
    """

    group_id: str
    offsets: tuple[OffsetToCommit, ...]
    generation: int = NO_GENERATION
    member_id: str = ""
    instance_id: str | None = None
    retention_ms: int = DEFAULT_RETENTION
    reports_unknown_group: bool = False


class FetchedOffset(Struct, frozen=True):
    """The committed offset of one partition; ``NO_OFFSET`` if the group has none.

    A request for stable offsets gets an error for those that an open transaction may change.
    """

    topic: str
    partition: int
    committed: CommittedOffset
    outcome: ErrorCode | None = None


class ListedGroup(Struct, frozen=True):
    """Entry of a list of groups."""

    group_id: str
    state: str
    protocol_type: str
    generation: int
    member_count: int
    type: str = "classic"


class DescribedMember(Struct, frozen=True):
    """Description of one member."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    metadata: bytes
    assignment: bytes


class DescribedGroup(Struct, frozen=True):
    """Description of a classic group."""

    group_id: str
    state: str
    protocol_type: str
    protocol_name: str
    generation: int
    leader: str
    members: tuple[DescribedMember, ...]


NOTHING_COMMITTED = CommittedOffset(NO_OFFSET)
CommitResult = ErrorCode | None
