"""Applies committed entries to the state machine, and replaces the log by snapshots of it."""

import logging
from collections.abc import Callable, Coroutine

from mainstem.cluster.raft.core import Raft
from mainstem.cluster.raft.drivers.interfaces_driver import DriverHooks, StateMachine, Storage
from mainstem.cluster.raft.drivers.pending_driver import PendingProposals, PendingReads
from mainstem.cluster.raft.messages import Entry, EntryType, SnapshotMeta, decode_change
from mainstem.model.errors import Unavailable

_log = logging.getLogger(__name__)


class EntryApplier:
    """Applies entries in order, completes the proposals that wait for them, takes snapshots."""

    def __init__(
        self,
        core: Raft,
        machine: StateMachine,
        hooks: DriverHooks,
        proposals: PendingProposals,
        reads: PendingReads,
    ) -> None:
        self._core = core
        self._machine = machine
        self._hooks = hooks
        self._proposals = proposals
        self._reads = reads
        self._compacting = False
        self._entries_since = self._bytes_since = 0

    def restore(self, snapshot: SnapshotMeta, state: bytes) -> None:
        """Start from a snapshot."""
        self._machine.restore(state)
        self._proposals.skipped_until(snapshot.index)
        self._reads.applied(snapshot.index)
        self._entries_since = self._bytes_since = 0
        self._hooks.on_members(snapshot.conf_state)

    def apply(self, entry: Entry) -> None:
        """Apply one entry."""
        if entry.type is EntryType.EntryConfChange:
            self._hooks.on_members(self._core.apply_change(decode_change(entry.data)))
        elif entry.data:
            self._machine.apply(entry.index, entry.data)
        self._core.applied_to(entry.index)
        self._proposals.applied(entry)
        self._reads.applied(entry.index)
        self._entries_since += 1
        self._bytes_since += len(entry.data)

    def snapshot(self, storage: Storage) -> Coroutine[None, None, None] | None:
        """The work of taking a snapshot, when there has been enough since the last one."""
        settings = self._hooks.settings
        due = (
            self._entries_since >= settings.snapshot_entries
            or self._bytes_since >= settings.snapshot_bytes
        )
        if not due or self._compacting:
            return None
        log = self._core.state.log
        term = log.term(log.applied)
        assert term is not None, "what was just applied is still here"
        meta = SnapshotMeta(log.applied, term, self._core.conf_state)
        self._entries_since = self._bytes_since = 0
        self._compacting = True
        return self._compact(storage, meta, self._machine.snapshot())

    async def _compact(
        self, storage: Storage, meta: SnapshotMeta, encode: Callable[[], bytes]
    ) -> None:
        keep = self._hooks.settings.keep_entries
        try:
            await storage.save_snapshot(meta, encode, keep=keep)
            self._core.compact(meta, keep=keep)
        except Unavailable as error:  # the log is kept; the next snapshot is tried later
            _log.warning("no snapshot was taken: %s", error)
        finally:
            self._compacting = False
