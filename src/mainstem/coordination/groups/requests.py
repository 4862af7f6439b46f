"""What is asked of a group coordinator and what it answers: plain values, no behaviour.

Refusals are ``MainstemError``s. Where one request concerns many things (partitions, members), the
answer lists an ``ErrorCode`` or None for each of them, in the order of the request.
"""

from msgspec import Struct

from mainstem.model.errors import ErrorCode

NO_OFFSET = -1
NO_EPOCH = -1
NO_GENERATION = -1
DEFAULT_RETENTION = -1


class JoinRequest(Struct, frozen=True, kw_only=True):
    """A member wants to be part of the next generation.

    ``protocols`` are (name, metadata) in the order the member prefers. Clients that know the
    two-step join (KIP-394) set ``id_required``; those that know ``skip_assignment`` (KIP-814) set
    ``may_skip_assignment``.
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
    """A member as the leader sees it when it assigns partitions."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinAnswer(Struct, frozen=True):
    """The generation a member belongs to; only its leader learns the other members."""

    member_id: str
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


class SyncRequest(Struct, frozen=True, kw_only=True):
    """A member asks for its assignment; the leader brings everybody's."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


class SyncAnswer(Struct, frozen=True):
    """What a member is assigned in this generation."""

    protocol_type: str | None
    protocol_name: str | None
    assignment: bytes


class HeartbeatRequest(Struct, frozen=True, kw_only=True):
    """A member is alive."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None = None


class LeavingMember(Struct, frozen=True):
    """Who goes: by member id, or by instance id alone when an administrator removes a member."""

    member_id: str
    instance_id: str | None = None


class CommittedOffset(Struct, frozen=True):
    """A position a group has reached. ``expire_ms`` is -1 unless an old client set its own date."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    commit_ms: int = 0
    expire_ms: int = -1


class OffsetToCommit(Struct, frozen=True):
    """One position of a commit."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""


class CommitRequest(Struct, frozen=True, kw_only=True):
    """Positions to keep for a group.

    Without a generation the caller is no member: a consumer that assigns partitions itself, or a
    tool. ``reports_unknown_group`` is set by clients that understand that refusal.
    """

    group_id: str
    offsets: tuple[OffsetToCommit, ...]
    generation: int = NO_GENERATION
    member_id: str = ""
    instance_id: str | None = None
    retention_ms: int = DEFAULT_RETENTION
    reports_unknown_group: bool = False


class FetchedOffset(Struct, frozen=True):
    """The position of one partition; ``NO_OFFSET`` where the group has none.

    A caller that wants only stable positions is refused those that an open transaction may move.
    """

    topic: str
    partition: int
    committed: CommittedOffset
    outcome: ErrorCode | None = None


class ListedGroup(Struct, frozen=True):
    """One line of a list of groups."""

    group_id: str
    state: str
    protocol_type: str
    generation: int
    member_count: int
    type: str = "classic"


class DescribedMember(Struct, frozen=True):
    """One member as an administrator sees it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    metadata: bytes
    assignment: bytes


class DescribedGroup(Struct, frozen=True):
    """Everything an administrator may want to know about a group."""

    group_id: str
    state: str
    protocol_type: str
    protocol_name: str
    generation: int
    leader: str
    members: tuple[DescribedMember, ...]


NOTHING_COMMITTED = CommittedOffset(NO_OFFSET)
CommitResult = ErrorCode | None
