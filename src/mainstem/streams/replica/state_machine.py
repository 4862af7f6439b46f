"""What one replica of a range accepts, promises and acknowledges.

    append ──▶ written ──▶ synced ──▶ ack          fence ──▶ promise stored + all synced ──▶ answer
       └──▶ fenced · gap · sealed                  sealed ──▶ cut, synced ──▶ done

Decides only; a driver stores, in this order: promise, cut, write, sync, and reports each as done.

Guarantees:
* once a promise to an epoch is given no older writer is acknowledged anything, not even what it had
  sent before and what was synced since;
* no answer to a fence leaves before the promise is on disk and with it everything the answer names;
* records follow each other without a gap; what is held already is not written twice;
* a sealed range takes nothing beyond its end, and is done only when all of it is on disk.
"""

from msgspec import Struct

from mainstem.model.ids import Epoch, Offset


class ReplicaAck(Struct, frozen=True):
    """To the writer of ``epoch``: everything below ``end`` is held, below ``synced`` on disk."""

    epoch: Epoch
    end: Offset
    synced: Offset


class Refusal(Struct, frozen=True):
    """Exactly one is set: the newer epoch, the end that was passed over, or the sealed end."""

    fenced_by: Epoch | None = None
    gap_at: Offset | None = None
    sealed_at: Offset | None = None


class FenceAnswer(Struct, frozen=True):
    """A promise and the end it covers.

    ``limbo``: records that were acknowledged may be lost here. ``directory`` names the disk, so
    that a blank one is not taken for the one it replaced.
    """

    epoch: Epoch
    end: Offset
    limbo: bool
    directory: str


class ReplicaEffects(Struct, frozen=True):
    """What the driver does: store (promise, cut, write, sync), then report."""

    promise: Epoch | None = None
    cut: Offset | None = None
    write: tuple[Offset, Offset] | None = None
    sync: bool = False
    ack: ReplicaAck | None = None
    refusal: Refusal | None = None
    answer: FenceAnswer | None = None
    catch_up: tuple[Offset, Offset] | None = None
    done: bool = False


class ReplicaState(Struct, frozen=True):
    """A replica as found on disk, or created. What is found after a crash counts as synced."""

    start: Offset
    end: Offset
    promised: Epoch
    directory: str
    limbo: bool = False


_NOTHING = ReplicaEffects()


def is_in_limbo(*, acks_unsynced: bool, unclean: bool, sync_failed: bool, done: bool) -> bool:
    """Whether a replica that comes back may have lost what it acknowledged.

    Args:
        acks_unsynced: ``flush.policy`` is ``written``.
        unclean: the operating system went down without a clean stop of the node.
        sync_failed: the node ended because a sync failed.
        done: the catalogue lists the replica as complete, which it reported after a sync.
    """
    return not done and (sync_failed or (unclean and acks_unsynced))


class RangeReplica:
    """Decides what one replica accepts, promises and acknowledges."""

    __slots__ = (
        "_accepted",
        "_announced_committed",
        "_fence",
        "_stored_promise",
        "_writer",
        "acks_unsynced",
        "directory",
        "known_committed",
        "limbo",
        "promised",
        "sealed_end",
        "start",
        "synced_end",
        "written_end",
    )

    def __init__(self, found: ReplicaState, *, acks_unsynced: bool) -> None:
        self.start = found.start
        self.directory = found.directory
        self.limbo = found.limbo
        self.promised = self._stored_promise = found.promised
        self.written_end = self.synced_end = self._accepted = found.end
        self.known_committed = self._announced_committed = found.start
        self.sealed_end: Offset | None = None
        self.acks_unsynced = acks_unsynced
        self._writer: Epoch | None = None
        # The epoch that waits for an answer and what must be synced before.
        self._fence: tuple[Epoch, Offset] | None = None

    @property
    def end(self) -> Offset:
        """What may be acknowledged: the end that the flush policy names."""
        return self.written_end if self.acks_unsynced else self.synced_end

    def on_append(
        self,
        epoch: Epoch,
        start: Offset,
        until: Offset,
        committed: Offset,
        *,
        to_disk: bool = False,
    ) -> ReplicaEffects:
        """A writer sends the batches of [start, until).

        A recovery sends them under its own epoch and ``to_disk``: it counts copies on disk,
        whatever the flush policy.
        """
        refusal = self._refusal(epoch)
        if refusal is None and start > self._accepted:
            refusal = Refusal(gap_at=self._accepted)
        if refusal is not None:
            return ReplicaEffects(refusal=refusal)
        promise = self._promise(epoch)
        self._writer = epoch
        self._announced_committed = max(self._announced_committed, committed)
        self._learn()
        syncs = to_disk or not self.acks_unsynced
        if until <= self._accepted:
            sync = syncs and self._is_dirty()
            return ReplicaEffects(promise=promise, sync=sync, ack=self._ack())
        first, self._accepted = self._accepted, until
        return ReplicaEffects(promise=promise, write=(first, until), sync=syncs)

    def on_fence(self, epoch: Epoch) -> ReplicaEffects:
        """A new writer requests a promise and the end."""
        refusal = self._refusal(epoch)
        if refusal is not None:
            return ReplicaEffects(refusal=refusal)
        promise = self._promise(epoch)
        self._fence = (epoch, self._accepted)
        return ReplicaEffects(promise=promise, sync=self._is_dirty(), answer=self._answer())

    def on_promise_stored(self, epoch: Epoch) -> ReplicaEffects:
        """A promise is on disk."""
        self._stored_promise = max(self._stored_promise, epoch)
        return self._effects()

    def on_written(self, end: Offset) -> ReplicaEffects:
        """Everything below ``end`` is written, and lost with the power."""
        self.written_end = max(self.written_end, min(end, self._accepted))
        self._learn()
        return self._effects() if self.acks_unsynced else _NOTHING

    def on_write_failed(self, held_until: Offset) -> ReplicaEffects:
        """A full disk: nothing beyond ``held_until``, the end of the files, will be written.

        The files can be ahead of ``written_end``: until their directory is durable, what is in
        them is not reported as written.
        """
        self._accepted = max(self.written_end, min(held_until, self._accepted))
        if self._fence is not None:
            self._fence = (self._fence[0], min(self._fence[1], self._accepted))
        return self._effects()

    def on_synced(self, end: Offset) -> ReplicaEffects:
        """Everything below ``end`` is on disk."""
        synced = min(end, self._accepted)
        if synced > self.synced_end:
            self.synced_end = synced
            self.written_end = max(self.written_end, synced)
            self._learn()
        return self._effects()

    def on_sealed(self, end: Offset) -> ReplicaEffects:
        """The catalogue sealed the range: what lies beyond was never committed."""
        assert self.sealed_end in {None, end}, "a range is sealed once"
        self.sealed_end = end
        cut = end if self._accepted > end else None
        self._accepted = min(self._accepted, end)
        self.written_end = min(self.written_end, end)
        self.synced_end = min(self.synced_end, end)
        self.known_committed = self.written_end
        missing = (self._accepted, end) if self._accepted < end else None
        return ReplicaEffects(
            cut=cut, sync=missing is None and self._is_dirty(), catch_up=missing,
            done=self._is_done(),
        )  # fmt: skip

    def on_copied(self, until: Offset) -> ReplicaEffects:
        """Records of a sealed range came from a peer, were checked and written."""
        assert self.sealed_end is not None, "an open range has its writer"
        assert until <= self.sealed_end, "a sealed range ends where the catalogue says"
        if until > self._accepted:
            self._accepted = self.written_end = self.known_committed = until
        missing = (until, self.sealed_end) if until < self.sealed_end else None
        return ReplicaEffects(sync=missing is None, catch_up=missing, done=self._is_done())

    def _refusal(self, epoch: Epoch) -> Refusal | None:
        if epoch < self.promised:
            return Refusal(fenced_by=self.promised)
        if self.sealed_end is not None:
            return Refusal(sealed_at=self.sealed_end)
        return None

    def _promise(self, epoch: Epoch) -> Epoch | None:
        if epoch == self.promised:
            return None
        self.promised = epoch
        self._fence = None
        return epoch

    def _learn(self) -> None:
        """A committed offset may arrive before its records, and counts once they are here."""
        known = min(self._announced_committed, self.written_end)
        self.known_committed = max(self.known_committed, known)

    def _is_dirty(self) -> bool:
        return self.synced_end < self._accepted

    def _is_done(self) -> bool:
        done = self.sealed_end is not None and self.synced_end >= self.sealed_end
        if done:
            self.limbo = False
        return done

    def _effects(self) -> ReplicaEffects:
        if self.sealed_end is not None:
            return ReplicaEffects(done=self._is_done())
        return ReplicaEffects(ack=self._ack(), answer=self._answer())

    def _ack(self) -> ReplicaAck | None:
        """Acknowledge to the writer that appended last, unless a newer one has a promise."""
        if self._writer != self.promised or self._stored_promise < self.promised:
            return None
        return ReplicaAck(self.promised, self.end, self.synced_end)

    def _answer(self) -> FenceAnswer | None:
        if self._fence is None:
            return None
        epoch, end = self._fence
        if self._stored_promise < epoch or self.synced_end < end:
            return None
        self._fence = None
        return FenceAnswer(epoch, self.synced_end, self.limbo, self.directory)
