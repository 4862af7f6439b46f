"""One replica of a range on this disk: carries out what ``RangeReplica`` decides.

    batches ──▶ checked ──▶ written ──▶ synced (shared) ──▶ acknowledged to the last writer
    fence   ──▶ promise file + sync ──▶ answered

The writer's own disk goes the same way, except that the writer has written its batches already
when it reports them (``write_own``). Guarantees: nothing is reported before it is stored as the
machine requires; bytes that do not check, or do not follow, are never written; a failed sync or
promise ends the node.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from mainstem.log.range_log import RangeLog, StagedBatch
from mainstem.log.segments import scan
from mainstem.model.errors import STORAGE_RECOVERS, Corrupt, ErrorCode, Unavailable
from mainstem.model.ids import Epoch, Offset, RangeIndex
from mainstem.model.topic_name import holds_metadata
from mainstem.streams.replica.promise_storage import Promise
from mainstem.streams.replica.state_machine import (
    FenceAnswer,
    RangeReplica,
    Refusal,
    ReplicaAck,
    ReplicaEffects,
)
from mainstem.streams.storage_retry_driver import RETRY_S, refusal_of
from mainstem.streams.writer.flusher import Flusher

ReplicaNotification = ReplicaAck | Refusal
NotifyWriter = Callable[[ReplicaNotification], None]


def _ignore(_notification: ReplicaNotification) -> None:
    """Default callback: no writer has sent anything yet."""


class PendingFences:
    """Fences that wait for their promise to be on disk."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Epoch, asyncio.Future[FenceAnswer | Refusal]]] = []

    def add(self, epoch: Epoch) -> asyncio.Future[FenceAnswer | Refusal]:
        """Add a fence of an epoch; the future of its answer."""
        waiter: asyncio.Future[FenceAnswer | Refusal] = asyncio.get_running_loop().create_future()
        self._waiting.append((epoch, waiter))
        return waiter

    def answer(self, answer: FenceAnswer) -> None:
        """A promise is on disk: the fences of other epochs are refused."""
        for epoch, waiter in self._take():
            is_kept = epoch == answer.epoch
            waiter.set_result(answer if is_kept else Refusal(fenced_by=answer.epoch))

    def sealed(self, end: Offset) -> None:
        """The range was sealed meanwhile."""
        for _, waiter in self._take():
            waiter.set_result(Refusal(sealed_at=end))

    def refuse(self, cause: str) -> None:
        """The promise could not be stored."""
        for _, waiter in self._take():
            waiter.set_exception(Unavailable(ErrorCode.WRITER_UNAVAILABLE, cause))

    def _take(self) -> list[tuple[Epoch, asyncio.Future[FenceAnswer | Refusal]]]:
        waiting, self._waiting = self._waiting, []
        return [one for one in waiting if not one[1].done()]


class ReplicaDriver:
    """Carries out the effects of one ``RangeReplica``.

    Args:
        log: the files.
        machine: the state machine.
        promise: the promise of the stream on this disk.
        flusher: starts syncs, and reports a failed disk.
    """

    def __init__(
        self, log: RangeLog, machine: RangeReplica, promise: Promise, flusher: Flusher
    ) -> None:
        self.log = log
        self._promise = promise
        self.machine = machine
        self.on_synced: Callable[[], None] | None = None
        # For readers of this replica: batches were written; more is known to be committed.
        self.on_taken: Callable[[list[StagedBatch]], None] | None = None
        self.on_committed: Callable[[], None] | None = None
        self._flusher = flusher
        self._notify: NotifyWriter = _ignore
        self._fences = PendingFences()
        self._storing: set[asyncio.Future[None]] = set()

    def attach(self) -> None:
        """Subscribe to the syncs of the files."""
        self.log.sync_listeners.append(self._on_synced)

    def detach(self) -> None:
        """The files no longer belong to this replica, or are about to be deleted."""
        self.log.sync_listeners.remove(self._on_synced)

    # Messages of a writer.

    def append(
        self,
        epoch: Epoch,
        span: tuple[Offset, Offset],
        committed: Offset,
        batches: memoryview,
        notify: NotifyWriter,
        *,
        to_disk: bool = False,
    ) -> None:
        """Write the batches of [start, until) of the writer of ``epoch``; answers by ``notify``.

        Raises:
            Corrupt: the bytes are not those batches.
        """
        start, until = span
        staged = self.checked(batches, start, until)
        known = self.machine.known_committed
        effects = self.machine.on_append(epoch, start, until, committed, to_disk=to_disk)
        if effects.refusal is not None:
            notify(effects.refusal)
            return
        self._notify = notify
        if effects.write is None:
            self._carry_out(effects)
        elif not to_disk and _is_short_of_space(self.log, self._flusher):
            # As on a full disk: the writer continues without this replica.
            self._carry_out(_write_failed(self.machine, self.log))
        elif self._write(staged, effects.write[0]):
            self._carry_out(effects)
            self._written(effects.write[1])
        self._notify_readers(known)

    def checked(self, batches: memoryview, start: Offset, until: Offset) -> list[StagedBatch]:
        """The batches of [start, until), each of them complete, valid and in its place."""
        rules = scan.Rules(self.log.identity.epoch)
        staged: list[StagedBatch] = []
        at = start
        try:
            for header, place in scan.check_batches(batches, 0, start, rules):
                at = Offset(header.until_offset)
                view = batches[place : place + header.size]
                staged.append((view, header.base_offset, at, header.max_timestamp))
        except scan.BadBatch as bad:
            raise Corrupt(
                f"{bad.cause}, in batches from a node", subject=str(self.log.identity.name.stream)
            ) from None
        if at != until:
            raise Corrupt(f"batches up to {at} from a node that announced {until}")
        return staged

    # The writer on this node.

    def begin_own(
        self, epoch: Epoch, start: Offset, until: Offset, committed: Offset
    ) -> Refusal | None:
        """This node's writer is about to write; the reason if it may not."""
        return self.machine.on_append(epoch, start, until, committed).refusal

    def write_own(self, until: Offset, notify: NotifyWriter) -> None:
        """This node's writer has written everything below ``until``."""
        self._notify = notify
        if not self.machine.acks_unsynced:
            self._flusher.sync(self.log)
        self._written(until)

    def fail_own(self) -> None:
        """This node's writer could not write what it had announced."""
        _write_failed(self.machine, self.log)

    def settled(self) -> None:
        """All of the sealed range is here, on disk and recorded: nothing is in doubt."""
        self._promise.set_limbo(RangeIndex(self.log.identity.name.index), is_in_limbo=False)

    # Fences and seals.

    async def fence(self, epoch: Epoch) -> FenceAnswer | Refusal:
        """Promise ``epoch`` and answer with the end, once both are on disk."""
        effects = self.machine.on_fence(epoch)
        if effects.refusal is not None:
            return effects.refusal
        if effects.answer is not None:
            return effects.answer
        waiter = self._fences.add(epoch)
        self._carry_out(effects)
        return await waiter

    async def store(
        self, epoch: Epoch, start: Offset, until: Offset, batches: memoryview
    ) -> ReplicaAck | Refusal:
        """Write batches of a recovery; the answer comes once they are on disk."""
        done: asyncio.Future[ReplicaAck | Refusal] = asyncio.get_running_loop().create_future()

        def notify(notification: ReplicaNotification) -> None:
            if not done.done() and (
                isinstance(notification, Refusal) or notification.synced >= until
            ):
                done.set_result(notification)

        committed = self.machine.known_committed
        self.append(epoch, (start, until), committed, batches, notify, to_disk=True)
        return await done

    def seal(self, end: Offset) -> tuple[Offset, Offset] | None:
        """The catalogue sealed the range: cut what lies beyond; what is missing here, if any.

        Raises:
            Unavailable: what lies beyond could not be cut; nothing has changed.
        """
        if self.log.written_end > end:  # first: a full disk may refuse it, and it is tried again
            self.log.truncate(end)
        effects = self.machine.on_sealed(end)
        self._fences.sealed(end)
        self._carry_out(effects)
        return effects.catch_up

    def copied(self, staged: list[StagedBatch]) -> tuple[Offset, Offset] | None:
        """Checked batches of a sealed range from a peer; what is still missing, if any.

        Raises:
            Unavailable: they could not be written.
        """
        if _is_short_of_space(self.log, self._flusher):
            raise self._flusher.space.refusal(str(self.log.directory))
        self.log.append(staged)
        effects = self.machine.on_copied(Offset(self.log.written_end))
        self._carry_out(effects)
        return effects.catch_up

    # Inside.

    def _write(self, staged: list[StagedBatch], first: Offset) -> bool:
        fresh = [batch for batch in staged if batch[1] >= first]
        try:
            self.log.append(fresh)
        except Unavailable as error:
            self._carry_out(_write_failed(self.machine, self.log))
            if error.code is ErrorCode.DISK_FULL:
                self._flusher.space.failed()
            if error.code not in STORAGE_RECOVERS:
                # Space and descriptors can be freed; after other failures the disk is not trusted.
                self._flusher.fatal(error)
            return False
        self._flusher.space.count_written(sum(len(batch[0]) for batch in fresh))
        if self.on_taken is not None:
            self.on_taken(fresh)
        return True

    def _written(self, until: Offset) -> None:
        machine = self.machine
        if machine.acks_unsynced and not self.log.directory_synced:
            # Whatever the policy, the folder must be durable before anything in it counts.
            self._flusher.sync(self.log)
            return
        self._carry_out(machine.on_written(until))

    def _on_synced(self, log: RangeLog) -> None:
        machine = self.machine
        known = machine.known_committed
        if machine.acks_unsynced:
            self._carry_out(machine.on_written(Offset(log.written_end)))
        self._carry_out(machine.on_synced(Offset(log.synced_end)))
        self._notify_readers(known)
        if self.on_synced is not None:
            notification, self.on_synced = self.on_synced, None
            notification()

    def _notify_readers(self, known: Offset) -> None:
        if self.on_committed is not None and self.machine.known_committed > known:
            self.on_committed()

    def _carry_out(self, effects: ReplicaEffects) -> None:
        if effects.promise is not None:
            self._store_promise(effects.promise)
        if effects.sync:
            self._flusher.sync(self.log)
        if effects.ack is not None:
            self._notify(effects.ack)
        if effects.answer is not None:
            self._fences.answer(effects.answer)

    def _store_promise(self, epoch: Epoch) -> None:
        loop = asyncio.get_running_loop()
        self._promise.epoch = max(self._promise.epoch, epoch)
        storing = loop.run_in_executor(None, partial(self._promise.store, epoch))
        self._storing.add(storing)

        def stored(future: asyncio.Future[None]) -> None:
            self._storing.discard(future)
            if future.cancelled():
                return
            if (error := future.exception()) is None:
                self._carry_out(self.machine.on_promise_stored(epoch))
            elif self.log.discarded:  # the stream was deleted under the promise
                self._fences.refuse("the range is no longer here")
            elif (refusal := refusal_of(error)) is not None:
                # Nothing is answered before the promise is on disk, so it is tried again.
                self._fences.refuse(str(refusal))
                loop.call_later(RETRY_S, self._store_promise, epoch)
            else:
                self._flusher.fatal(error)

        storing.add_done_callback(stored)


def _write_failed(machine: RangeReplica, log: RangeLog) -> ReplicaEffects:
    """Report a failed write with the end of the files: what they hold stays accepted."""
    return machine.on_write_failed(Offset(log.written_end))


def _is_short_of_space(log: RangeLog, flusher: Flusher) -> bool:
    """Whether records of a range may not be written: there is space for metadata only."""
    return flusher.space.is_low and not holds_metadata(log.identity.name.topic_name)
