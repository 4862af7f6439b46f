"""The stored state of a Raft node, in one folder: the log's files and the newest snapshot.

``open`` blocks and is called once; the rest is awaited. The log has one thread, snapshots another:
encoding and sending a large state delays no vote and no entry.
An error of ``fsync`` is final: the page cache may have dropped what could not be written, so
nothing is retried and the node must stop.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from mainstem.cluster.frame_storage import refusal, sync_folder
from mainstem.cluster.raft.messages import (
    DurableState,
    Entry,
    EntryId,
    HardState,
    SnapshotMeta,
)
from mainstem.cluster.raft.persistence.snapshot_storage import (
    IncomingSnapshot,
    OutgoingSnapshot,
    SnapshotStorage,
)
from mainstem.cluster.raft.persistence.wal_storage import (
    REMEDY,
    SEGMENT_BYTES,
    WalFrame,
    WalStorage,
)
from mainstem.model.errors import Corrupt, MainstemError
from mainstem.model.file_errors import is_descriptor_shortage

T = TypeVar("T")


class RaftStorage:
    """Stores the log and the newest snapshot of a Raft node in one folder."""

    def __init__(
        self,
        folder: Path,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        sync: Callable[[int], None] = os.fdatasync,
    ) -> None:
        self._folder = folder
        self._wal = WalStorage(folder, segment_bytes=segment_bytes, sync=sync)
        self._snapshots = SnapshotStorage(folder, sync=sync)
        self._log_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="raft-log")
        self._snapshot_thread = ThreadPoolExecutor(
            max_workers=1, thread_name_prefix="raft-snapshot"
        )
        self.state = b""  # the state of the snapshot that ``open`` found

    @property
    def cut_bytes(self) -> int:
        """How many bytes a crash had left unfinished at the end of the log."""
        return self._wal.cut_bytes

    def open(self, initial_state: DurableState | None = None) -> DurableState:
        """Read the stored state; an empty folder starts with ``initial_state``. Blocking.

        Raises:
            Corrupt: something that was once durable is damaged or missing.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        for leftover in self._folder.glob("*.new"):
            leftover.unlink()
        is_new = not any(self._folder.glob("*.wal"))
        newest = self._snapshots.newest()
        meta, self.state = newest or (SnapshotMeta(), b"")
        if is_new:
            begun = initial_state or DurableState()
            if newest is not None and meta != begun.snapshot:
                raise Corrupt(
                    "the snapshot exists, but the log does not",
                    subject=str(self._folder),
                    remedy=REMEDY,
                )
            return self._found(begun)
        hard_state, start, entries = self._wal.open()
        return self._fit(meta, hard_state, start, entries)

    async def save(
        self,
        hard_state: HardState | None,
        entries: Sequence[Entry],
        incoming: IncomingSnapshot | None = None,
    ) -> bytes | None:
        """Make a ``Ready`` durable; the state of the snapshot that it installs.

        Raises:
            Unavailable: the disk is full; nothing was kept and the call may be repeated.
            StorageFailed: it is unknown what was kept.
        """
        kept = tuple(entries)
        return await _on(self._log_thread, lambda: self.save_now(hard_state, kept, incoming))

    async def save_snapshot(
        self, meta: SnapshotMeta, encode: Callable[[], bytes], *, keep: int
    ) -> None:
        """Encode and keep a snapshot; drop entries more than ``keep`` before it.

        Raises:
            Unavailable: there is no space for it; the log is kept.
            StorageFailed: it is unknown what was kept.
        """
        await _on(self._snapshot_thread, lambda: self.save_snapshot_now(meta, encode()))
        await _on(self._log_thread, lambda: self.forget_now(meta.index - keep))

    async def outgoing(self, meta: SnapshotMeta) -> OutgoingSnapshot | None:
        """A snapshot to be sent; None when a newer one has replaced it."""
        return await _on(self._snapshot_thread, lambda: self._snapshots.outgoing(meta))

    async def read(self, snapshot: OutgoingSnapshot, position: int, size: int) -> bytes:
        """A chunk of a snapshot that is being sent."""
        return await _on(self._snapshot_thread, lambda: snapshot.read(position, size))

    async def incoming(self, meta: SnapshotMeta, total_bytes: int) -> IncomingSnapshot:
        """Reserve space for an announced snapshot.

        Raises:
            Unavailable: the disk is full.
        """
        return await _on(self._snapshot_thread, lambda: self.incoming_now(meta, total_bytes))

    async def receive(self, snapshot: IncomingSnapshot, data: bytes) -> None:
        """Write the next chunk; with the last one the snapshot is verified.

        Raises:
            Corrupt: what has arrived is not what was sent.
            Unavailable: the disk is full.
        """
        await _on(self._snapshot_thread, lambda: self.receive_now(snapshot, data))

    async def close(self) -> None:
        """Finish what is under way and close the files."""
        await _on(self._snapshot_thread, lambda: None)
        await _on(self._log_thread, self._wal.close)
        self.close_now()

    def save_now(
        self,
        hard_state: HardState | None,
        entries: tuple[Entry, ...],
        incoming: IncomingSnapshot | None = None,
    ) -> bytes | None:
        """The blocking part of ``save``."""
        state = None
        start = None
        if incoming is not None:
            try:
                state = self._snapshots.install(incoming)
            except OSError as error:
                passing = refusal(error, self._folder) if is_descriptor_shortage(error) else None
                raise passing or self._wal.fail(error) from error
            start = incoming.meta.id
        self._wal.append(WalFrame(hard_state, start, entries))
        if start is not None:
            self._wal.forget_until(start.index)
        return state

    def save_snapshot_now(self, meta: SnapshotMeta, state: bytes) -> None:
        """The blocking part of ``save_snapshot``."""
        try:
            self._snapshots.save(meta, state)
        except OSError as error:
            raise self._no_space(error) from error

    def forget_now(self, index: int) -> None:
        """Remove files of the log that a snapshot has made obsolete."""
        try:
            self._wal.forget_until(index)
        except OSError as error:
            raise self._wal.fail(error) from error

    def incoming_now(self, meta: SnapshotMeta, total_bytes: int) -> IncomingSnapshot:
        """The blocking part of ``incoming``."""
        try:
            return self._snapshots.incoming(meta, total_bytes)
        except OSError as error:
            raise self._no_space(error) from error

    def receive_now(self, snapshot: IncomingSnapshot, data: bytes) -> None:
        """The blocking part of ``receive``."""
        try:
            snapshot.write(data)
            if snapshot.is_complete:
                self._snapshots.check(snapshot)
        except OSError as error:
            raise self._no_space(error) from error

    def close_now(self) -> None:
        """Wait for the threads; files are closed if they are not yet."""
        self._snapshot_thread.shutdown(wait=True)
        self._log_thread.shutdown(wait=True)
        self._wal.close()

    def _no_space(self, error: OSError) -> MainstemError:
        return refusal(error, self._folder) or self._wal.fail(error)

    def _found(self, durable: DurableState) -> DurableState:
        # The log's first file comes last: a crash before it leaves a folder that is still new.
        if durable.snapshot.index:
            self._snapshots.save(durable.snapshot, self.state)
        self._wal.open()
        self._wal.append(WalFrame(durable.hard_state, durable.start, durable.entries))
        sync_folder(self._folder.parent)
        return durable

    def _fit(
        self,
        meta: SnapshotMeta,
        hard_state: HardState,
        start: EntryId | None,
        entries: list[Entry],
    ) -> DurableState:
        """Join snapshot and entries, which overlap or meet."""
        first = entries[0].index if entries else meta.index + 1
        commit = max(hard_state.commit, meta.index)
        if hard_state.term < meta.term:  # a snapshot was installed, not yet in the log
            hard_state = HardState(meta.term)
        hard_state = HardState(hard_state.term, hard_state.vote, commit)
        if first > meta.index + 1:
            raise Corrupt(
                f"entries between the snapshot at {meta.index} and {first} are missing",
                subject=str(self._folder),
                remedy=REMEDY,
            )
        if first == meta.index + 1:
            return DurableState(hard_state, meta, meta.id, tuple(entries))
        place = meta.index - first
        if place < len(entries) and entries[place].term == meta.term:
            if start is not None and start.index == first - 1:
                return DurableState(hard_state, meta, start, tuple(entries))
            # The term before the first entry is no longer known; that entry's own will do.
            begin = EntryId(entries[0].index, entries[0].term)
            return DurableState(hard_state, meta, begin, tuple(entries[1:]))
        # The same: the entries that it replaced were never committed.
        self._wal.append(WalFrame(hard_state, meta.id))
        return DurableState(hard_state, meta, meta.id)


async def _on(thread: ThreadPoolExecutor, job: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(thread, job)
