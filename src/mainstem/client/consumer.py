"""The consumer: reads given partitions, or those that its group assigns.

Guarantees: records of a partition are returned in order; a record counts as consumed when the next
one (or the next batch) is requested, and auto-commit commits only consumed records, so nothing is
skipped after a crash; rebalances happen inside ``poll``, never while the caller works on records.
"""

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from types import TracebackType
from typing import Final, Self

from mainstem.client.cluster import Cluster
from mainstem.client.consuming.committed_offsets import (
    OUTSIDER,
    OffsetSink,
    commit_offsets,
    fetch_committed,
)
from mainstem.client.consuming.consumed_offsets import ConsumedOffsets
from mainstem.client.consuming.fetcher import RESETS, Fetcher
from mainstem.client.consuming.initial_offsets import locate
from mainstem.client.consuming.membership import GroupMembership
from mainstem.client.consuming.offset_query import LATEST, list_offsets
from mainstem.client.settings import ConsumerSettings
from mainstem.client.values import CommittedOffset, ConsumerRecord, OffsetAndTime, TopicPartition
from mainstem.model.errors import ErrorCode, Fenced, InvalidRequest, Unavailable

__all__ = ["Consumer", "ConsumerSettings"]

ISOLATIONS: Final = ("read_uncommitted", "read_committed")
ITERATION_POLL_MS: Final = 1_000

OnChange = Callable[[list[TopicPartition]], Awaitable[None]]


class Consumer:
    """Reads records. An async context manager and an async iterator.

    Args:
        cluster: where to read; given an address (or several), the consumer owns its cluster.
        group: the consumer group; needed to subscribe and to commit.
        settings: how to read.
    """

    def __init__(
        self,
        cluster: Cluster | str | Sequence[str],
        group: str | None = None,
        settings: ConsumerSettings | None = None,
    ) -> None:
        self.settings = settings or ConsumerSettings()
        self.group = group
        _check(self.settings)
        self._owns_cluster = not isinstance(cluster, Cluster)
        self._cluster = cluster if isinstance(cluster, Cluster) else Cluster(cluster)
        self._wakeup = asyncio.Event()
        self._fetcher = Fetcher(self._cluster, self.settings, self._wakeup)
        self._membership: GroupMembership | None = None
        self._topics: tuple[str, ...] = ()
        self._on_change: tuple[OnChange | None, OnChange | None] = (None, None)
        self.progress = ConsumedOffsets()
        self._committed_at = asyncio.get_running_loop().time()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # After an error in the block, the records last returned do not count as consumed.
        await self.close(is_consumed=error is None)

    # What to read.

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads these partitions, without group assignment."""
        if self._membership is not None:
            raise InvalidRequest(ErrorCode.INVALID_REQUEST, "the consumer has subscribed")
        self.progress.forget()
        self._fetcher.follow(partitions)

    def subscribe(
        self,
        topics: Iterable[str],
        *,
        on_assigned: OnChange | None = None,
        on_revoked: OnChange | None = None,
    ) -> None:
        """Reads these topics together with the other members of the group, from ``poll`` on."""
        if self.group is None:
            raise InvalidRequest(
                ErrorCode.INVALID_GROUP, "a subscription needs a group", remedy="give a group"
            )
        if self._membership is None:
            self._membership = GroupMembership(
                self._cluster, self.group, self.settings, self._wakeup
            )
        self._topics = tuple(topics)
        self._on_change = (on_assigned, on_revoked)
        self._membership.needs_join = True

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read now."""
        return frozenset(self._fetcher.feeds)

    # Reading.

    async def poll(
        self, timeout_ms: float = 1_000, records_max: int | None = None
    ) -> list[ConsumerRecord]:
        """The next records, as soon as there are some; none after the time-out.

        Records that an earlier call returned count as consumed from now on.

        Raises:
            MainstemError: a partition cannot be read, or the group refuses this member.
        """
        self.progress.consume()
        count = self.settings.poll_records_max if records_max is None else records_max
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                records = await self._next(count)
        except TimeoutError:
            records = []
        self.progress.give(records)
        return records

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """The next record; waits for it as long as it takes."""
        progress = self.progress
        progress.consume()
        while (record := progress.give_next()) is None:
            try:
                async with asyncio.timeout(ITERATION_POLL_MS / 1000):
                    records = await self._next(self.settings.poll_records_max)
                    progress.waiting.extend(records)
            except TimeoutError:
                continue
        return record

    # Positions.

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continues reading at an offset."""
        feed = self._fetcher.feeds.get(partition)
        if feed is None:
            raise InvalidRequest(
                ErrorCode.INVALID_REQUEST, "the partition is not assigned", subject=str(partition)
            )
        feed.move(offset)
        self.progress.jump(partition, offset)
        self._fetcher.kick()

    async def seek_to_time(
        self, timestamp_ms: int, partitions: Collection[TopicPartition] | None = None
    ) -> None:
        """Seeks to the first records at or after a time, or ``EARLIEST`` or ``LATEST``."""
        wanted = self.assignment if partitions is None else partitions
        found = await self.offsets(dict.fromkeys(wanted, timestamp_ms))
        beyond = [partition for partition, answer in found.items() if answer.offset < 0]
        ends = await self.offsets(dict.fromkeys(beyond, LATEST)) if beyond else {}
        for partition, answer in found.items():
            self.seek(partition, ends.get(partition, answer).offset)

    async def position(self, partition: TopicPartition) -> int:
        """The offset of the record that comes next."""
        waiting = self.progress.next_waiting(partition)
        if waiting is not None:
            return waiting
        feed = self._fetcher.feeds[partition]
        await locate(self._cluster, [feed], self.group, self.settings)
        assert feed.position is not None, "located partitions have a position"
        return feed.position

    def pause(self, partitions: Iterable[TopicPartition], *, paused: bool = True) -> None:
        """Stops returning records of some partitions, or continues with ``paused=False``."""
        for partition in partitions:
            self._fetcher.feeds[partition].is_paused = paused
        self._fetcher.kick()

    async def offsets(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTime]:
        """Offsets by timestamp, ``EARLIEST`` or ``LATEST``."""
        return await list_offsets(
            self._cluster,
            wanted,
            read_committed=self.settings.isolation == "read_committed",
            timeout_ms=self.settings.api_timeout_ms,
        )

    # Committing.

    async def commit(
        self,
        offsets: Mapping[TopicPartition, CommittedOffset] | None = None,
        *,
        through: OffsetSink | None = None,
    ) -> None:
        """Commits the given offsets, or those after every record that was returned.

        ``through`` a producer they become part of its transaction and take effect with its commit.

        Raises:
            Fenced: the group has continued without this member.
        """
        if self.group is None:
            raise InvalidRequest(ErrorCode.INVALID_GROUP, "the consumer has no group")
        if offsets is None:
            self.progress.consume()
            offsets = self.progress.take_consumed()
        member = OUTSIDER if self._membership is None else self._membership.stamp
        self._committed_at = asyncio.get_running_loop().time()
        try:
            if through is not None:
                await through.send_offsets(self.group, offsets, member)
                return
            await commit_offsets(
                self._cluster, self.group, offsets, member, timeout_ms=self.settings.api_timeout_ms
            )
        except (Unavailable, asyncio.CancelledError):
            self.progress.put_back(offsets)  # to be committed later
            raise

    async def committed(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """The committed offsets of the group."""
        if self.group is None:
            raise InvalidRequest(ErrorCode.INVALID_GROUP, "the consumer has no group")
        return await fetch_committed(
            self._cluster,
            self.group,
            partitions,
            stable=self.settings.isolation == "read_committed",
            timeout_ms=self.settings.api_timeout_ms,
        )

    async def close(self, *, is_consumed: bool = True) -> None:
        """Commits what was consumed, leaves the group and closes.

        ``is_consumed``: whether the records last returned count as consumed.
        """
        if self._is_closed:
            return
        self._is_closed = True
        if is_consumed:
            self.progress.consume()
        try:
            await self._commit_in_passing()
        finally:
            await self._fetcher.close()
            if self._membership is not None:
                await self._membership.close()
            if self._owns_cluster:
                await self._cluster.close()

    # Internals.

    async def _next(self, count: int) -> list[ConsumerRecord]:
        while True:
            self._wakeup.clear()
            if self._membership is not None:
                self._membership.asked()
                if self._membership.needs_join or self._membership.is_joining:
                    await self._rejoin(self._membership)
            since_ms = (asyncio.get_running_loop().time() - self._committed_at) * 1000
            if since_ms >= self.settings.auto_commit_interval_ms:
                await self._commit_in_passing()
            feeds = self._fetcher.feeds.values()
            await locate(self._cluster, feeds, self.group, self.settings)
            records = self._fetcher.take(count)
            if records:
                return records
            await self._wakeup.wait()

    async def _commit_in_passing(self) -> None:
        """Commits what is consumed, if auto-commit is on."""
        if self.group is None or not self.settings.auto_commit:
            return
        try:
            await self.commit(self.progress.take_consumed())
        except Unavailable:
            return  # kept for the next time
        except Fenced:
            return  # another member has the partitions now and starts at the last commit

    async def _rejoin(self, membership: GroupMembership) -> None:
        """Gives up the partitions and takes those that the group assigns."""
        on_assigned, on_revoked = self._on_change
        if not membership.is_joining:
            await self._commit_in_passing()
            revoked = sorted(self._fetcher.feeds)
            self.progress.forget()
            self._fetcher.follow([])
            if revoked and on_revoked is not None:
                # A poll that times out must not cancel the caller's callback.
                await asyncio.shield(asyncio.ensure_future(on_revoked(revoked)))
        partitions = await membership.join(self._topics)
        self._fetcher.follow(partitions)
        if on_assigned is not None:
            await asyncio.shield(asyncio.ensure_future(on_assigned(sorted(partitions))))


def _check(settings: ConsumerSettings) -> None:
    for name, value, allowed in (
        ("reset", settings.reset, tuple(RESETS)),
        ("isolation", settings.isolation, ISOLATIONS),
    ):
        if value not in allowed:
            raise InvalidRequest(
                ErrorCode.INVALID_REQUEST,
                f"{name} {value!r}",
                remedy=f"use one of {', '.join(allowed)}",
            )
