"""The durable journal of the catalogue's facts: two files under ``data/catalogue/``.

    snapshot   the whole catalogue as of frame n          replaced by rename, never changed in place
    journal    header | mark | frame n+1 | frame n+2 | …  appended to, one frame per sync

A frame is written, synced, and only then is the next one written; so everything but the last frame
must be valid, and a last frame that is not was never acknowledged: it is cut off. The *mark* in the
header records how far the file was known to be durable. Damage or truncation below the mark, or a
valid frame behind a damaged one, is ``Corrupt`` and stops the node rather than losing topics
silently.

An error of ``fsync`` is final: the page cache may already have dropped what could not be written,
so nothing is retried and the node stops. A full disk is not: the unfinished frame is taken back and
the command refused.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from struct import Struct

from crc32c import crc32c
from msgspec import Struct as Value

from mainstem.cluster.frame_storage import (
    FRAME,
    FRAME_BYTES_MAX,
    FRAMES_START,
    frame,
    frame_at,
    is_followed,
    is_not_replaced,
    read_start,
    refusal,
    replace,
    replace_and_open,
    start_of_file,
    sync_folder,
    write_again,
    write_all,
    write_mark,
)
from mainstem.model.errors import Corrupt, ErrorCode, MainstemError, Unavailable
from mainstem.model.file_magic import check_magic
from mainstem.model.limits import MIB

JOURNAL_MAGIC = b"MSJOURN1"
SNAPSHOT_MAGIC = b"MSSNAPS1"
SNAPSHOT = Struct(">8sQQI4x")  # magic, index, payload bytes, checksum of the three and payload
SNAPSHOT_AFTER_BYTES = 4 * MIB

REMEDY = (
    "restore the folder from a backup, or start once with --rebuild-catalogue to rebuild the "
    "topics from the folders of their records"
)


class StoredJournal(Value, frozen=True):
    """What was found on disk: a snapshot and the payloads of the frames after it."""

    snapshot: bytes | None
    frames: tuple[bytes, ...]
    cut_bytes: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever recorded here."""
        return self.snapshot is None and not self.frames


class JournalFailed(MainstemError):
    """The journal has failed; the node must stop."""

    def __init__(self, cause: str, *, subject: str) -> None:
        super().__init__(ErrorCode.STORAGE_FAILED, cause, subject=subject)


class JournalStorage:
    """Stores the facts of the catalogue in a journal and a snapshot.

    ``append`` and ``snapshot`` run on one thread of their own.
    """

    def __init__(
        self,
        folder: Path,
        *,
        snapshot_after_bytes: int = SNAPSHOT_AFTER_BYTES,
        sync: Callable[[int], None] = os.fdatasync,
    ) -> None:
        self._folder = folder
        self._journal = folder / "journal"
        self._snapshot = folder / "snapshot"
        self._snapshot_after_bytes = snapshot_after_bytes
        self._sync = sync
        self._fd = -1
        self._end = 0  # where the next frame goes
        self._next_index = 1
        self._snapshot_bytes = 0
        self._failed = False
        self._thread: ThreadPoolExecutor | None = None

    @property
    def snapshot_due(self) -> bool:
        """Whether the journal is long enough for a snapshot to be due."""
        return self._end > max(self._snapshot_after_bytes, 2 * self._snapshot_bytes)

    @property
    def next_index(self) -> int:
        """The number of the next frame."""
        return self._next_index

    def open(self) -> StoredJournal:
        """Read what is stored, cut a torn end, and prepare to append. Blocking.

        Raises:
            Corrupt: something that was once durable is damaged or missing.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        for leftover in self._folder.glob("*.new"):
            leftover.unlink()
        index, snapshot = self._read_snapshot()
        if not self._journal.exists():
            if snapshot is not None:
                raise Corrupt("the snapshot exists, but the journal does not",
                              subject=str(self._journal), remedy=REMEDY)  # fmt: skip
            os.close(self._new_journal(first_index=1))
            sync_folder(self._folder.parent)
        self._fd = os.open(self._journal, os.O_RDWR | os.O_CLOEXEC)
        data = self._journal.read_bytes()
        frames = self._read_journal(data, index)
        cut_bytes = len(data) - self._end
        if cut_bytes:
            os.ftruncate(self._fd, self._end)
        # What the last process wrote but had not synced is visible now, so it must be durable.
        write_again(self._fd, data, self._read_header(data)[1], self._end)
        self._sync(self._fd)
        write_mark(self._fd, self._end)
        return StoredJournal(snapshot, frames, cut_bytes)

    async def append(self, entries: Sequence[bytes]) -> None:
        """Make entries durable, all of them or none; no entry holds a line feed.

        Raises:
            Unavailable: the disk is full; nothing was recorded.
            JournalFailed: it is unknown what the disk holds; the node must stop.
        """
        await self._on_thread(self.append_now, b"\n".join(entries))

    async def snapshot(self, state: bytes) -> None:
        """Replace snapshot and journal by ``state``, which covers everything appended so far."""
        await self._on_thread(self.snapshot_now, state)

    def close(self) -> None:
        """Mark the end as durable and close the file. Waits for what is in flight."""
        if self._thread is not None:
            self._thread.shutdown(wait=True)
            self._thread = None
        if self._fd >= 0:
            if not self._failed:
                self._sync(self._fd)
            os.close(self._fd)
            self._fd = -1

    def append_now(self, payload: bytes) -> None:
        """The blocking part of ``append``."""
        self._refuse_if_failed()
        if len(payload) > FRAME_BYTES_MAX:
            raise Unavailable(ErrorCode.OVERLOADED, f"{len(payload)} bytes in one journal frame")
        added = frame(self._next_index, payload)
        try:
            write_all(self._fd, added, self._end)
        except OSError as error:
            self._take_back(error)
        try:
            self._sync(self._fd)
            self._end += len(added)
            self._next_index += 1
            write_mark(self._fd, self._end)
        except OSError as error:
            raise self._fail(error) from error

    def snapshot_now(self, state: bytes) -> None:
        """The blocking part of ``snapshot``."""
        self._refuse_if_failed()
        last = self._next_index - 1
        head = SNAPSHOT.pack(SNAPSHOT_MAGIC, last, len(state), 0)[:24]
        checksum = crc32c(state, crc32c(head))
        try:
            packed = SNAPSHOT.pack(SNAPSHOT_MAGIC, last, len(state), checksum)
            replace(self._snapshot, packed + state, self._sync)
            fresh = self._new_journal(first_index=self._next_index)
        except OSError as error:
            if is_not_replaced(error):
                return  # the journal is kept; the next snapshot is tried later
            raise self._fail(error) from error
        os.close(self._fd)
        self._fd = fresh
        self._end = FRAMES_START
        self._snapshot_bytes = len(state)

    async def _on_thread(self, job: Callable[[bytes], None], argument: bytes) -> None:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="catalogue")
        await asyncio.get_running_loop().run_in_executor(self._thread, job, argument)

    def _refuse_if_failed(self) -> None:
        if self._failed or self._fd < 0:
            raise JournalFailed("the journal is closed", subject=str(self._journal))

    def _take_back(self, error: OSError) -> None:
        """A frame could not be written: remove what was written of it, or fail."""
        passing = refusal(error, self._journal)
        if passing is None:
            raise self._fail(error) from error
        try:
            os.ftruncate(self._fd, self._end)
        except OSError as again:
            raise self._fail(again) from again
        raise passing from error

    def _fail(self, error: OSError) -> JournalFailed:
        self._failed = True
        return JournalFailed(f"{error.strerror or error}", subject=str(self._journal))

    def _new_journal(self, *, first_index: int) -> int:
        start = start_of_file(JOURNAL_MAGIC, first_index)
        return replace_and_open(self._journal, start, self._sync)

    def _read_snapshot(self) -> tuple[int, bytes | None]:
        if not self._snapshot.exists():
            return 0, None
        data = self._snapshot.read_bytes()
        if len(data) >= SNAPSHOT.size:
            magic, index, length, checksum = SNAPSHOT.unpack_from(data)
            payload = data[SNAPSHOT.size :]
            padded = data[SNAPSHOT.size - 4 : SNAPSHOT.size] == bytes(4)
            sound = length == len(payload) and padded
            if sound and crc32c(payload, crc32c(data[:24])) == checksum:
                check_magic(magic, SNAPSHOT_MAGIC, "a snapshot", str(self._snapshot))
                if magic == SNAPSHOT_MAGIC:
                    self._snapshot_bytes = length
                    return index, payload
        raise Corrupt("the snapshot is damaged", subject=str(self._snapshot), remedy=REMEDY)

    def _read_journal(self, data: bytes, snapshot_index: int) -> tuple[bytes, ...]:
        first, durable = self._read_header(data)
        if first > snapshot_index + 1:
            raise self._corrupt(
                f"it starts with frame {first}, the snapshot ends with {snapshot_index}"
            )
        frames = []
        index, position = first, FRAMES_START
        while (payload := frame_at(data, position, index)) is not None:
            if index > snapshot_index:
                frames.append(payload)
            index += 1
            position += FRAME.size + len(payload)
        if position < durable:
            raise self._corrupt(f"frame {index} at byte {position} is damaged or missing")
        if is_followed(data, position, index):
            raise self._corrupt(f"frame {index} at byte {position} is damaged, later ones are not")
        if index <= snapshot_index:
            raise self._corrupt(
                f"it ends with frame {index - 1}, before the snapshot's {snapshot_index}"
            )
        self._end, self._next_index = position, index
        return tuple(frames)

    def _read_header(self, data: bytes) -> tuple[int, int]:
        if len(data) < FRAMES_START:
            raise self._corrupt("it is too short")
        found = read_start(data, JOURNAL_MAGIC, self._journal)
        if found is None:
            raise self._corrupt("its header is damaged")
        return found

    def _corrupt(self, cause: str) -> Corrupt:
        return Corrupt(
            f"the journal is damaged: {cause}", subject=str(self._journal), remedy=REMEDY
        )


def set_aside(folder: Path) -> Path | None:
    """Move a damaged catalogue to another folder for inspection; the new path."""
    if not folder.exists():
        return None
    for number in range(1, 10_000):
        aside = folder.with_name(f"{folder.name}.damaged-{number}")
        if not aside.exists():
            folder.rename(aside)
            sync_folder(folder.parent)
            return aside
    raise Corrupt("there are already 10,000 folders of damaged catalogues", subject=str(folder))
