"""The broker API for consumer groups and committed offsets.

Requests and answers are plain values, re-exported here so that protocols need to look no further.
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
    Reader,
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
    "OffsetToCommit",
    "PartitionProgress",
    "Reader",
    "SyncAnswer",
    "SyncRequest",
]


class ConsumerGroups(Protocol):
    """Groups whose members are assigned by the coordinator (KIP-848)."""

    async def heartbeat(self, request: ConsumerHeartbeat) -> ConsumerAnswer:
        """A member joins, lives or leaves; its epoch, and its partitions where they changed."""
        ...

    def describe(self, group_id: str) -> DescribedConsumerGroup:
        """One such group in full; ``UNKNOWN_GROUP`` without one."""
        ...


class Groups(Protocol):
    """Consumer groups. An ``CommitResult`` is an error code, or None for success."""

    @property
    def consumers(self) -> ConsumerGroups:
        """Groups whose members are assigned by the coordinator."""
        ...

    def coordinator_partition(self, group_id: str) -> int:
        """The partition of the internal topic that a group is kept in."""
        ...

    async def join(self, request: JoinRequest) -> JoinAnswer:
        """Take part in the next generation; answered when it begins."""
        ...

    async def sync(self, request: SyncRequest) -> SyncAnswer:
        """What the caller is assigned; answered when the leader has brought it."""
        ...

    def heartbeat(self, request: HeartbeatRequest) -> None:
        """The caller is alive; raises if it has to do something about its membership."""
        ...

    async def leave(
        self, group_id: str, leaving_members: Sequence[LeavingMember]
    ) -> list[CommitResult]:
        """Members go, or an administrator removes them."""
        ...

    async def commit_offsets(self, request: CommitRequest) -> list[CommitResult]:
        """Keep positions; the outcome for each, once they are safe."""
        ...

    async def fetch_offsets(
        self,
        group_id: str,
        partitions: Sequence[tuple[str, int]] | None,
        *,
        stable: bool = False,
        reader: Reader = NOBODY,
    ) -> Sequence[FetchedOffset]:
        """The positions asked for, or (None) all of the group; ``NO_OFFSET`` where none is.

        ``stable`` refuses positions that a transaction, not decided yet, may still move. A
        ``reader`` that names a member has to be in its present epoch.
        """
        ...

    async def delete_offsets(
        self, group_id: str, partitions: Sequence[tuple[str, int]]
    ) -> list[CommitResult]:
        """Forget positions, except in topics the group reads."""
        ...

    async def delete(self, group_id: str) -> None:
        """Forget an empty group and all its positions."""
        ...

    def describe(self, group_id: str) -> DescribedGroup:
        """One classic group in full; ``UNKNOWN_GROUP`` without one."""
        ...

    def list(
        self, states: Collection[str] = (), types: Collection[str] = ()
    ) -> Sequence[ListedGroup]:
        """The groups in one of these states and of one of these types; none named: all."""
        ...


class PartitionProgress(Struct, frozen=True):
    """Where a group stands in one partition; share groups know what is left to do there."""

    topic: str
    partition: int
    offset: int
    metadata: str = ""
    lag: int | None = None


class GroupView(Struct, frozen=True):
    """A group of whichever kind (classic, consumer, share), and where it stands."""

    group: DescribedGroup
    type: str
    standings: tuple[PartitionProgress, ...]


class AllGroups(Protocol):
    """Groups of every kind and of every node of the cluster, for administrators."""

    async def list(self) -> Sequence[ListedGroup]:
        """Every group; refused rather than incomplete."""
        ...

    async def view(self, group_id: str) -> GroupView:
        """One group with its members and where it stands; ``UNKNOWN_GROUP`` without one."""
        ...

    async def delete(self, group_id: str) -> None:
        """Forget an empty group and where it stood."""
        ...
