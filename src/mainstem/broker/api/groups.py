"""The broker API for consumer groups and committed offsets.

Requests and answers are plain values, re-exported here, so that protocols import only this module.
Refusals are raised as ``MainstemError``s; ``MEMBER_ID_REQUIRED`` carries the new member id as its
subject. ``join`` and ``sync`` may wait for other members and may be cancelled at any time.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from msgspec import Struct

from mainstem.coordination.consumer.requests import (
    NOBODY,
    ConsumerAnswer,
    ConsumerHeartbeat,
    DescribedConsumer,
    DescribedConsumerGroup,
    OffsetReader,
)
from mainstem.coordination.groups.requests import (
    DEFAULT_RETENTION,
    NO_EPOCH,
    NO_GENERATION,
    NO_OFFSET,
    CommitRequest,
    CommitResult,
    CommittedOffset,
    DescribedGroup,
    DescribedMember,
    FetchedOffset,
    HeartbeatRequest,
    JoinAnswer,
    JoinedMember,
    JoinRequest,
    LeavingMember,
    ListedGroup,
    OffsetToCommit,
    SyncAnswer,
    SyncRequest,
)

__all__ = [
    "DEFAULT_RETENTION",
    "NOBODY",
    "NO_EPOCH",
    "NO_GENERATION",
    "NO_OFFSET",
    "AllGroups",
    "CommitRequest",
    "CommitResult",
    "CommittedOffset",
    "ConsumerAnswer",
    "ConsumerGroups",
    "ConsumerHeartbeat",
    "DescribedConsumer",
    "DescribedConsumerGroup",
    "DescribedGroup",
    "DescribedMember",
    "FetchedOffset",
    "GroupView",
    "Groups",
    "HeartbeatRequest",
    "JoinAnswer",
    "JoinRequest",
    "JoinedMember",
    "LeavingMember",
    "ListedGroup",
    "OffsetReader",
    "OffsetToCommit",
    "PartitionProgress",
    "SyncAnswer",
    "SyncRequest",
]


class ConsumerGroups(Protocol):
    """Groups whose members are assigned by the coordinator (KIP-848)."""

    async def heartbeat(self, request: ConsumerHeartbeat) -> ConsumerAnswer:
        """Join, keep alive or leave; the member's epoch, and its partitions if they changed."""
        ...

    def describe(self, group_id: str) -> DescribedConsumerGroup:
        """Describe one such group; raises ``UNKNOWN_GROUP``."""
        ...


class Groups(Protocol):
    """Consumer groups. A ``CommitResult`` is an error code, or None for success."""

    @property
    def consumers(self) -> ConsumerGroups:
        """Groups whose members are assigned by the coordinator."""
        ...

    def coordinator_partition(self, group_id: str) -> int:
        """The partition of the internal topic that a group is kept in."""
        ...

    async def join(self, request: JoinRequest) -> JoinAnswer:
        """Join the next generation; returns when it starts."""
        ...

    async def sync(self, request: SyncRequest) -> SyncAnswer:
        """The caller's assignment; returns when the leader has sent it."""
        ...

    def heartbeat(self, request: HeartbeatRequest) -> None:
        """Keep the caller's membership alive; raises if it has to rejoin."""
        ...

    async def leave(
        self, group_id: str, leaving_members: Sequence[LeavingMember]
    ) -> list[CommitResult]:
        """Members leave, or an administrator removes them."""
        ...

    async def commit_offsets(self, request: CommitRequest) -> list[CommitResult]:
        """Commit offsets; returns the result for each, once they are stored."""
        ...

    async def fetch_offsets(
        self,
        group_id: str,
        partitions: Sequence[tuple[str, int]] | None,
        *,
        stable: bool = False,
        reader: OffsetReader = NOBODY,
    ) -> Sequence[FetchedOffset]:
        """The committed offsets requested, or (None) all; ``NO_OFFSET`` where there is none.

        ``stable`` refuses offsets that an undecided transaction may still change. A ``reader``
        that names a member has to be in its current epoch.
        """
        ...

    async def delete_offsets(
        self, group_id: str, partitions: Sequence[tuple[str, int]]
    ) -> list[CommitResult]:
        """Delete committed offsets, except in topics the group is subscribed to."""
        ...

    async def delete(self, group_id: str) -> None:
        """Delete an empty group and all its committed offsets."""
        ...

    def describe(self, group_id: str) -> DescribedGroup:
        """Describe one classic group; raises ``UNKNOWN_GROUP``."""
        ...

    def list(
        self, states: Collection[str] = (), types: Collection[str] = ()
    ) -> Sequence[ListedGroup]:
        """The groups in one of these states and of one of these types; none named: all."""
        ...


class PartitionProgress(Struct, frozen=True):
    """A group's offset in one partition; share groups also have the remaining records."""

    topic: str
    partition: int
    offset: int
    metadata: str = ""
    lag: int | None = None


class GroupView(Struct, frozen=True):
    """A group of any kind (classic, consumer, share), and its offsets."""

    group: DescribedGroup
    type: str
    standings: tuple[PartitionProgress, ...]


class AllGroups(Protocol):
    """Groups of every kind and of every node of the cluster, for administrators."""

    async def list(self) -> Sequence[ListedGroup]:
        """Every group; refused rather than incomplete."""
        ...

    async def view(self, group_id: str) -> GroupView:
        """One group with its members and offsets; raises ``UNKNOWN_GROUP``."""
        ...

    async def delete(self, group_id: str) -> None:
        """Delete an empty group and its offsets."""
        ...
