"""Share partitions of this node: loaded where the partition is written, stored where the group is.

    acknowledge ──▶ machine decides ──▶ stored by the group's coordinator ──▶ answered
    acquire     ──▶ machine decides ──▶ answered; a crash gives the records to others

Guarantees: an acknowledgement is answered once its effect is stored; if that fails, the partition
is closed here and loaded again from the last stored state. While one state is being stored by the
coordinator, later decisions wait for the next one.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from mainstem.broker.api.broker import PartitionWriter, Streams, check_fresh
from mainstem.coordination.share.configs import ShareConfigs
from mainstem.coordination.share.facts import ShareState
from mainstem.coordination.share.group import SharePartitionKey
from mainstem.coordination.share.partition import SharePartition
from mainstem.coordination.share.requests import AckRange
from mainstem.coordination.share.sessions import SessionPartition
from mainstem.model.clock import Clock
from mainstem.model.config.group import EARLIEST, LATEST
from mainstem.model.errors import ErrorCode, Fenced, InvalidRequest, MainstemError, Unavailable
from mainstem.model.ids import StreamId

_log = logging.getLogger(__name__)


class ShareStore(Protocol):
    """Storage of the states of share partitions, at their group's coordinator."""

    async def read(
        self, group_id: str, place: SharePartitionKey, leader_epoch: int
    ) -> ShareState | None:
        """The stored state of a partition; None: nothing yet."""
        ...

    async def write(self, group_id: str, place: SharePartitionKey, state: ShareState) -> None:
        """Store a state; returns once it is durable."""
        ...


class OpenSharePartition:
    """One partition that this node writes, as one group reads it."""

    def __init__(
        self,
        group_id: str,
        writer: PartitionWriter,
        store: ShareStore,
        configs: ShareConfigs,
        clock: Clock,
    ) -> None:
        self.group_id = group_id
        self.writer = writer
        self.machine: SharePartition
        self.failure: MainstemError | None = None
        self._store = store
        self._configs = configs
        self._clock = clock
        self._state_epoch = 0
        self._version = 0
        self._stored = 0
        self._saving: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waiters: dict[Callable[[], None], None] = {}

    async def load(self) -> None:
        """Start from the stored state, or from the group's configured start."""
        writer, rules = self.writer, self._configs.rules(self.group_id)
        state = await self._store.read(self.group_id, self._place, writer.epoch)
        if state is not None:
            self._state_epoch, self._version = state.state_epoch, state.version
            self.machine = SharePartition.restored(
                state.share, rules.delivery_limit, writer.next_offset
            )
            self._stored = self.machine.changes
            return
        self.machine = SharePartition(self._first_offset())
        self._stored = -1  # the start is stored too, before the first acknowledgement
        await self.saved()

    def check(self) -> None:
        """Refuse where another node may have taken over.

        Raises:
            MainstemError: why.
        """
        if self.failure is not None:
            raise self.failure
        if self.writer.closed is not None:
            raise self.writer.closed
        check_fresh(self.writer)

    def now_ms(self) -> int:
        """The clock of lock time-outs, in milliseconds."""
        return round(self._clock.monotonic() * 1000)

    async def acknowledge(self, member_id: str, ranges: Sequence[AckRange]) -> None:
        """Apply acknowledgements; returns once they are stored."""
        self.check()
        rules, now_ms = self._configs.rules(self.group_id), self.now_ms()
        self.machine.expire(rules, now_ms)
        self.machine.acknowledge(member_id, ranges, rules, now_ms)
        self.moved()
        await self.saved()

    def release(self, member_id: str) -> None:
        """Release the records of a member; stored in the background."""
        if self.machine.release(member_id, self._configs.rules(self.group_id)):
            self.moved()
            self.save_soon()

    def moved(self) -> None:
        """Wake waiting fetches: records may be available."""
        self.locked()
        for wake in tuple(self._waiters):
            wake()

    def locked(self) -> None:
        """Set the timer for the end of the next lock."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        at_ms = self.machine.next_deadline_ms()
        if at_ms is not None and self.failure is None:
            delay_s = max(at_ms - self.now_ms(), 0) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._ring)

    def add_waiter(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` whenever records may have become available."""
        self._waiters[wake] = None

    def remove_waiter(self, wake: Callable[[], None]) -> None:
        """Stop calling ``wake``."""
        self._waiters.pop(wake, None)

    async def saved(self) -> None:
        """Wait until all decisions up to now are stored.

        Raises:
            MainstemError: it cannot be stored; the partition is closed here.
        """
        wanted = self.machine.changes
        while self._stored < wanted:
            if self.failure is not None:
                raise self.failure
            await asyncio.shield(self._begin_save())

    def save_soon(self) -> None:
        """Store in the background; no request waits for it."""
        if self._stored < self.machine.changes and self.failure is None:
            self._begin_save()

    def end(self, failure: MainstemError) -> None:
        """Close; what is not stored is dropped."""
        if self.failure is None:
            self.failure = failure
        self.moved()

    async def leave(self) -> None:
        """Store what is not stored yet, then close: the partition has no more readers."""
        try:
            await self.saved()
        except MainstemError:
            return  # logged where it failed; the last stored state is valid
        self.end(_not_writer("the share partition was closed here"))

    def _begin_save(self) -> asyncio.Task[None]:
        if self._saving is None:
            self._saving = asyncio.get_running_loop().create_task(self._save())
        return self._saving

    async def _save(self) -> None:
        changes = self.machine.changes
        self._version += 1
        saved, epoch = self.machine.saved(), self.writer.epoch
        state = ShareState(saved, self._state_epoch, epoch, self._version)
        try:
            await self._store.write(self.group_id, self._place, state)
            self._stored = changes
        except MainstemError as error:
            _log.warning("%s of group %s: %s", self.writer.id, self.group_id, error)
            self.end(_to_member(error))
        finally:
            self._saving = None

    def _ring(self) -> None:
        self._timer = None
        if self.machine.expire(self._configs.rules(self.group_id), self.now_ms()):
            self.save_soon()
        self.moved()

    @property
    def _place(self) -> SharePartitionKey:
        return (self.writer.id.topic, self.writer.id.partition)

    def _first_offset(self) -> int:
        writer = self.writer
        latest = (
            writer.last_stable if self._configs.committed_only(self.group_id) else writer.committed
        )
        begin = self._configs.reset(self.group_id)
        if begin == EARLIEST:
            return writer.start_offset
        if begin == LATEST:
            return latest
        found = writer.offset_for_timestamp(self._clock.wall_ms() - int(begin))
        return latest if found is None else found[0]


class SharePartitions:
    """Every share partition that is in use on this node."""

    def __init__(
        self, streams: Streams, store: ShareStore, configs: ShareConfigs, clock: Clock
    ) -> None:
        self._streams = streams
        self._store = store
        self._configs = configs
        self._clock = clock
        self._live: dict[SessionPartition, OpenSharePartition] = {}
        self._loading: dict[SessionPartition, asyncio.Task[OpenSharePartition]] = {}
        self._leaving: dict[SessionPartition, asyncio.Task[None]] = {}

    def found(self, group_id: str, stream: StreamId) -> OpenSharePartition:
        """The share partition, if it is in use.

        Raises:
            MainstemError: another node writes it, or no records of it are acquired.
        """
        writer = self._streams.partition_by_id(stream.topic, stream.partition)
        live = self._live.get((group_id, stream))
        if live is None or live.writer is not writer or live.failure is not None:
            raise InvalidRequest(
                ErrorCode.INVALID_RECORD_STATE, "no records are acquired", subject=str(stream)
            )
        return live

    async def open(self, group_id: str, stream: StreamId) -> OpenSharePartition:
        """The share partition, loaded if necessary."""
        writer = self._streams.partition_by_id(stream.topic, stream.partition)
        shared = (group_id, stream)
        live = self._live.get(shared)
        if live is not None and live.writer is writer and live.failure is None:
            return live
        if live is not None:
            self.drop(shared)
        loading = self._loading.get(shared)
        if loading is None:
            loading = asyncio.get_running_loop().create_task(self._load(shared, writer))
            self._loading[shared] = loading
        # One load serves all waiting requests, also when one of them is cancelled.
        return await asyncio.shield(loading)

    def drop(self, shared: SessionPartition) -> None:
        """Drop a share partition without readers: its state is stored, or being stored."""
        live = self._live.pop(shared, None)
        if live is not None:
            leaving = asyncio.get_running_loop().create_task(live.leave())
            self._leaving[shared] = leaving
            leaving.add_done_callback(lambda _: self._left(shared, leaving))

    def of_group(self, group_id: str) -> list[OpenSharePartition]:
        """The share partitions of a group on this node."""
        return [live for live in self._live.values() if live.group_id == group_id]

    def drop_group(self, group_id: str) -> None:
        """Drop all share partitions of a group."""
        for live in self.of_group(group_id):
            self.drop((group_id, live.writer.id))

    async def stop(self) -> None:
        """Store and drop all share partitions."""
        for shared in list(self._live):
            self.drop(shared)
        await asyncio.gather(*self._leaving.values(), return_exceptions=True)

    async def _load(self, shared: SessionPartition, writer: PartitionWriter) -> OpenSharePartition:
        live = OpenSharePartition(shared[0], writer, self._store, self._configs, self._clock)
        try:
            # A state still being stored must not overwrite later ones.
            leaving = self._leaving.get(shared)
            if leaving is not None:
                await asyncio.shield(leaving)
            await live.load()
        except MainstemError as error:
            raise _to_member(error) from error
        finally:
            self._loading.pop(shared, None)
        self._live[shared] = live
        return live

    def _left(self, shared: SessionPartition, leaving: asyncio.Task[None]) -> None:
        if self._leaving.get(shared) is leaving:
            del self._leaving[shared]


def _to_member(error: MainstemError) -> MainstemError:
    """The error for a member when a state cannot be read or stored."""
    if isinstance(error, Fenced):
        return _not_writer(error.cause)
    return error


def _not_writer(cause: str) -> Unavailable:
    return Unavailable(ErrorCode.NOT_WRITER, cause)
