"""The write-ahead log of one Raft node: term, vote and entries, in files that are only appended to.

    00000000000000000001.wal   header | mark | frame 1 | frame 2 | …
    00000000000000000873.wal   header | mark | frame 873 | …          the last one is written to

Every frame is synced before the next one is written. So all but the last frame must be sound, and a
last frame that is not was never acknowledged: it is cut off. The *mark* records how far a file was
known to be durable; damage below it, or a sound frame behind a damaged one, is ``Corrupt``: a node
that lost a vote or an entry must not continue as if it had not.

The first frame of a file repeats term and vote, so that older files can go as soon as a snapshot
covers their entries.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from mainstem.cluster.frame_storage import (
    FRAME,
    FRAME_BYTES_MAX,
    FRAMES_START,
    frame_at,
    is_followed,
    is_not_replaced,
    read_start,
    refusal,
    replace_and_open,
    start_of_file,
    sync_folder,
    write_again,
    write_all,
    write_mark,
)
from mainstem.cluster.frame_storage import frame as framed
from mainstem.cluster.raft.messages import Entry, EntryId, HardState
from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.model.errors import Corrupt, ErrorCode, MainstemError, Unavailable
from mainstem.model.limits import MIB

MAGIC = b"MSRAFTW1"
SEGMENT_BYTES = 8 * MIB
REMEDY = (
    "remove this node from the group, empty its Raft folder, and add it again: "
    "it is brought up to date by the others"
)


class WalFrame(msgspec.Struct, array_like=True, frozen=True):
    """What one write keeps, all of it or nothing.

    ``start``: the log starts over after that entry, because a snapshot was installed.
    """

    hard_state: HardState | None = None
    start: EntryId | None = None
    entries: tuple[Entry, ...] = ()


class StorageFailed(MainstemError):
    """It is unknown what the disk holds; the node must stop."""

    def __init__(self, cause: str, *, subject: str) -> None:
        super().__init__(ErrorCode.STORAGE_FAILED, cause, subject=subject)


class _Segment:
    """One file: its first frame's number and the largest index among its entries."""

    __slots__ = ("last_entry_index", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last_entry_index = 0


_encode = msgspec.msgpack.Encoder().encode
_frames = msgspec.msgpack.Decoder(WalFrame)


class WalStorage:
    """Appends term, vote and entries of a Raft node to log files.

    Blocking; used by one thread at a time.
    """

    def __init__(
        self,
        folder: Path,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        sync: Callable[[int], None] = os.fdatasync,
    ) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._sync = sync
        self._segments: list[_Segment] = []
        self._fd = -1
        self._end = 0
        self._next_number = 1
        self._hard_state = HardState()
        self._failed = False
        self.cut_bytes = 0  # bytes that a crash had left unfinished

    def open(self) -> tuple[HardState, EntryId | None, list[Entry]]:
        """Read everything, cut a torn end; the state, where the log starts if known, the entries.

        Raises:
            Corrupt: something that was once durable is damaged or missing.
        """
        start: EntryId | None = None
        entries: list[Entry] = []
        paths = sorted(self._folder.glob("*.wal"))
        for path in paths:
            self._segments.append(_Segment(path))
            for frame in self._read(path, is_last=path == paths[-1]):
                start = self._replay(frame, start, entries)
        if not self._segments:
            self._new_segment()
        else:
            self._fd = os.open(self._segments[-1].path, os.O_RDWR | os.O_CLOEXEC)
            if self.cut_bytes:
                os.ftruncate(self._fd, self._end)
            # What the last process wrote but had not synced is visible now, so it must be durable.
            data = self._segments[-1].path.read_bytes()
            write_again(
                self._fd, data, self._read_header(self._segments[-1].path, data)[1], self._end
            )
            self._synced()
        return self._hard_state, start, entries

    def append(self, frame: WalFrame) -> None:
        """Make a frame durable.

        Raises:
            Unavailable: the disk is full; nothing was kept.
            StorageFailed: it is unknown what was kept.
        """
        self._refuse_if_failed()
        if self._end >= self._segment_bytes:
            self._roll()
        self._write(frame)

    def forget_until(self, index: int) -> None:
        """Remove files whose entries are all at or before ``index``."""
        removed = False
        while len(self._segments) > 1 and self._segments[0].last_entry_index <= index:
            self._segments.pop(0).path.unlink()
            removed = True
        if removed:
            sync_folder(self._folder)

    def close(self) -> None:
        """Close the file; its end is durable and marked."""
        if self._fd >= 0:
            if not self._failed:
                self._synced()
                self._sync(self._fd)
            os.close(self._fd)
            self._fd = -1

    def fail(self, error: OSError) -> StorageFailed:
        """Refuse all further calls."""
        self._failed = True
        return StorageFailed(f"{error.strerror or error}", subject=str(self._folder))

    def _write(self, frame: WalFrame) -> None:
        payload = _encode(frame)
        if len(payload) > FRAME_BYTES_MAX:
            raise Unavailable(ErrorCode.OVERLOADED, f"{len(payload)} bytes in one frame")
        try:
            write_all(self._fd, framed(self._next_number, payload), self._end)
        except OSError as error:
            self._take_back(error)
        self._end += FRAME.size + len(payload)
        self._next_number += 1
        try:
            self._synced()
        except OSError as error:
            raise self.fail(error) from error
        self._hard_state = frame.hard_state or self._hard_state
        self._note_entries(frame.entries)

    def _synced(self) -> None:
        self._sync(self._fd)
        write_mark(self._fd, self._end)

    def _take_back(self, error: OSError) -> None:
        passing = refusal(error, self._folder)
        if passing is None:
            raise self.fail(error) from error
        try:
            os.ftruncate(self._fd, self._end)
        except OSError as again:
            raise self.fail(again) from again
        raise passing from error

    def _roll(self) -> None:
        """Continue in a new file, whose first frame repeats term and vote."""
        old = self._fd
        try:
            self._new_segment()
        except OSError as error:
            if is_not_replaced(error):  # the old file stays in use
                return
            raise self.fail(error) from error
        os.close(old)

    def _new_segment(self) -> None:
        path = self._folder / f"{self._next_number:020d}.wal"
        first = framed(self._next_number, _encode(WalFrame(hard_state=self._hard_state)))
        end = FRAMES_START + len(first)
        data = start_of_file(MAGIC, self._next_number, end) + first
        self._fd = replace_and_open(path, data, self._sync)
        self._segments.append(_Segment(path))
        self._end = end
        self._next_number += 1

    def _note_entries(self, entries: Sequence[Entry]) -> None:
        if entries:
            segment = self._segments[-1]
            segment.last_entry_index = max(segment.last_entry_index, entries[-1].index)

    def _replay(
        self, frame: WalFrame, start: EntryId | None, entries: list[Entry]
    ) -> EntryId | None:
        self._hard_state = frame.hard_state or self._hard_state
        self._note_entries(frame.entries)
        if frame.start is not None:
            start = frame.start
            entries.clear()
        if frame.entries:
            first = frame.entries[0].index
            if entries and first > entries[-1].index + 1:
                raise self._corrupt(f"entries between {entries[-1].index} and {first} are missing")
            if entries and first >= entries[0].index:
                del entries[first - entries[0].index :]
            else:
                entries.clear()
            entries.extend(frame.entries)
        return start

    def _read(self, path: Path, *, is_last: bool) -> list[WalFrame]:
        data = path.read_bytes()
        first, durable = self._read_header(path, data)
        if len(self._segments) > 1 and first != self._next_number:
            raise self._corrupt(f"{path.name} follows frame {self._next_number - 1}")
        frames = []
        number, position = first, FRAMES_START
        while (payload := frame_at(data, position, number)) is not None:
            try:
                frames.append(_frames.decode(payload))
            except DECODE_ERRORS as error:
                raise self._corrupt(f"frame {number} of {path.name}: {error}") from error
            number += 1
            position += FRAME.size + len(payload)
        self.cut_bytes = len(data) - position
        if position < durable or (self.cut_bytes and not is_last):
            raise self._corrupt(f"frame {number} of {path.name} is damaged or missing")
        if is_followed(data, position, number):
            raise self._corrupt(f"frame {number} of {path.name} is damaged, later ones are not")
        self._next_number, self._end = number, position
        return frames

    def _read_header(self, path: Path, data: bytes) -> tuple[int, int]:
        if len(data) < FRAMES_START:
            raise self._corrupt(f"{path.name} is too short")
        found = read_start(data, MAGIC, path)
        if found is None or path.name != f"{found[0]:020d}.wal":
            raise self._corrupt(f"the header of {path.name} is damaged")
        return found

    def _corrupt(self, cause: str) -> Corrupt:
        return Corrupt(
            f"the Raft log is damaged: {cause}", subject=str(self._folder), remedy=REMEDY
        )

    def _refuse_if_failed(self) -> None:
        if self._failed or self._fd < 0:
            raise StorageFailed("the Raft log is closed", subject=str(self._folder))
