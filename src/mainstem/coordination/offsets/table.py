"""Shard: the committed offsets of every group, by topic and partition.

Offsets expire ``retention`` after their group became empty; those of consumers that are not
members, and of topics that a group no longer reads, that long after their commit. An expiry time
that an old client set itself (``expire_ms``) takes precedence.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from mainstem.coordination.groups.facts import OffsetCommitted, OffsetRemoved
from mainstem.coordination.groups.requests import (
    DEFAULT_RETENTION,
    NOTHING_COMMITTED,
    CommitRequest,
    CommitResult,
    CommittedOffset,
    FetchedOffset,
)
from mainstem.coordination.offsets.pending import PendingOffsets
from mainstem.model.errors import ErrorCode

Partition = tuple[str, int]


class OffsetOwner(Protocol):
    """The group that offsets belong to."""

    id: str

    def is_subscribed(self, topic: str) -> bool:
        """Whether the group reads ``topic``."""
        ...

    def expiry_start_ms(self, commit_ms: int) -> int | None:
        """Time from which the retention of an unused offset counts; None if it does not expire."""
        ...


class OffsetTable:
    """The committed offsets of one shard. Only ``replay`` changes them."""

    def __init__(self, *, metadata_bytes_max: int, retention_ms: int) -> None:
        self._metadata_bytes_max = metadata_bytes_max
        self._retention_ms = retention_ms
        self._offsets: dict[str, dict[Partition, CommittedOffset]] = {}
        self.pending = PendingOffsets()

    def of(self, group_id: str) -> dict[Partition, CommittedOffset]:
        """All committed offsets of a group; must not be modified."""
        return self._offsets.get(group_id, {})

    def has(self, group_id: str) -> bool:
        """Whether a group has committed or pending offsets."""
        return group_id in self._offsets or self.pending.has(group_id)

    def fetch(
        self, group_id: str, partitions: Iterable[Partition] | None, *, stable: bool = False
    ) -> tuple[FetchedOffset, ...]:
        """The requested offsets, or all of the group; ``stable`` refuses those that are pending."""
        known = self.of(group_id)
        return tuple(
            FetchedOffset(topic, p, NOTHING_COMMITTED, ErrorCode.UNSTABLE_OFFSET)
            if stable and self.pending.is_open(group_id, topic, p)
            else FetchedOffset(topic, p, known.get((topic, p), NOTHING_COMMITTED))
            for topic, p in (known if partitions is None else partitions)
        )

    def commit(
        self, request: CommitRequest, wall_ms: int
    ) -> tuple[list[CommitResult], list[OffsetCommitted]]:
        """Decide a commit: the outcome for each offset, and the facts to store."""
        asked_ms = request.retention_ms
        expire_ms = -1 if asked_ms == DEFAULT_RETENTION else wall_ms + max(asked_ms, 0)
        outcomes: list[CommitResult] = []
        facts = []
        for wanted in request.offsets:
            if len(wanted.metadata.encode()) > self._metadata_bytes_max:
                outcomes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            committed = CommittedOffset(
                wanted.offset, wanted.leader_epoch, wanted.metadata, wall_ms, expire_ms
            )
            facts.append(
                OffsetCommitted(request.group_id, wanted.topic, wanted.partition, committed)
            )
            outcomes.append(None)
        return outcomes, facts

    def delete(
        self, group: OffsetOwner, partitions: Sequence[Partition]
    ) -> tuple[list[CommitResult], list[OffsetRemoved]]:
        """Decide which offsets may be deleted: not those of topics the group reads."""
        known = self.of(group.id)
        outcomes: list[CommitResult] = [
            ErrorCode.GROUP_SUBSCRIBED if group.is_subscribed(topic) else None
            for topic, _ in partitions
        ]
        facts = [
            OffsetRemoved(group.id, *partition)
            for partition, outcome in zip(partitions, outcomes, strict=True)
            if outcome is None and partition in known
        ]
        return outcomes, facts

    def delete_all(self, group_id: str) -> list[OffsetRemoved]:
        """Decide to delete every offset of a group."""
        return [OffsetRemoved(group_id, *partition) for partition in self._places(group_id)]

    def delete_topic(self, topic: str) -> list[OffsetRemoved]:
        """Decide to delete every offset of a deleted topic."""
        return [
            OffsetRemoved(group_id, *partition)
            for group_id in dict.fromkeys((*self._offsets, *self.pending.groups()))
            for partition in self._places(group_id)
            if partition[0] == topic
        ]

    def topics(self) -> set[str]:
        """Every topic for which a group has a committed offset."""
        return {topic for known in self._offsets.values() for topic, _ in known}

    def expire(self, group: OffsetOwner, wall_ms: int) -> list[OffsetRemoved]:
        """Decide which offsets of a group have expired."""
        return [
            OffsetRemoved(group.id, *partition)
            for partition, committed in self.of(group.id).items()
            if not group.is_subscribed(partition[0])
            and not self.pending.is_open(group.id, *partition)
            and self._is_expired(group, committed, wall_ms)
        ]

    def replay(self, fact: OffsetCommitted | OffsetRemoved) -> None:
        """Apply a stored fact; it replaces pending offsets of the same partition."""
        self.pending.overtake(fact.group_id, fact.topic, fact.partition)
        if isinstance(fact, OffsetCommitted):
            self._put(fact)
            return
        known = self._offsets.get(fact.group_id, {})
        known.pop((fact.topic, fact.partition), None)
        if not known:
            self._offsets.pop(fact.group_id, None)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Apply the marker of a transaction: its pending offsets take effect or are discarded."""
        for committed in self.pending.end(producer_id, commit=commit):
            self._put(committed)

    def _put(self, fact: OffsetCommitted) -> None:
        known = self._offsets.setdefault(fact.group_id, {})
        known[fact.topic, fact.partition] = fact.committed

    def _places(self, group_id: str) -> dict[Partition, None]:
        """The partitions for which the group has a committed or pending offset."""
        return dict.fromkeys((*self.of(group_id), *self.pending.places(group_id)))

    def _is_expired(self, group: OffsetOwner, committed: CommittedOffset, wall_ms: int) -> bool:
        since_ms = group.expiry_start_ms(committed.commit_ms)
        if since_ms is None:
            return False
        if committed.expire_ms >= 0:
            return wall_ms >= committed.expire_ms
        return wall_ms - since_ms >= self._retention_ms
