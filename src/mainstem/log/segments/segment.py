"""One append-only file of batches, with its two sparse indexes.

A segment that this process writes remembers where its latest batches are, so that a reader at the
tail costs two look-ups. It is *finished* when the range rolls: reserved space is released, the
indexes are written, and from then on nothing of it has to be in memory.
"""

from array import array
from bisect import bisect_left
from pathlib import Path

from mainstem.log.disk.file_access import FileAccess, OpenFile, storage_error, unreadable
from mainstem.log.naming import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from mainstem.log.segments import scan
from mainstem.log.segments.index import SegmentIndex, SegmentSummary, read_index, write_index
from mainstem.log.segments.open_files import OpenFiles
from mainstem.log.verification.damage import Damage
from mainstem.log.verification.verified_bytes import VerifiedBytes
from mainstem.model.errors import Corrupt
from mainstem.model.limits import MIB
from mainstem.model.records.batch import NO_TIMESTAMP

# Bytes already stamped, base offset, until offset, max timestamp.
StagedBatch = tuple[memoryview, int, int, int]

VIEWS_PER_WRITE_MAX = 1024  # IOV_MAX
TAIL_BATCHES = 512  # positions remembered behind the end: at least these, at most twice as many
RESERVE_BYTES_MIN = 1 * MIB
RESERVE_BYTES_MAX = 64 * MIB
SAVE_INDEX_BYTES = 64 * MIB


class Segment:
    """One file; all its batches belong to one range and one epoch."""

    __slots__ = (
        "_file",
        "_files",
        "_index",
        "_index_at",
        "_reserve_bytes",
        "_reserved",
        "base_offset",
        "created_ms",
        "cursors",
        "damage",
        "dense",
        "dirty",
        "epoch",
        "finished",
        "index_interval_bytes",
        "index_synced",
        "indexed_bytes",
        "max_timestamp",
        "offset_of_max_timestamp",
        "path",
        "size",
        "tail_offsets",
        "tail_positions",
        "until_offset",
        "used",
        "verified",
    )

    def __init__(self, path: Path, base_offset: int, epoch: int, files: OpenFiles) -> None:
        self.path = path
        self.base_offset = base_offset
        self.epoch = epoch
        self.dense = False  # every batch has an index entry, and offsets may have gaps
        self.index_interval_bytes = 4096
        self.size = 0
        self.until_offset = base_offset
        self.max_timestamp = NO_TIMESTAMP
        self.offset_of_max_timestamp = -1
        self.created_ms = 0
        self.dirty = False
        self.used = True
        self.finished = False
        self.indexed_bytes = -1  # what the index files cover
        self.index_synced = False
        self.damage: list[Damage] = []
        self.verified = VerifiedBytes()
        self.tail_offsets: array[int] = array("q")
        self.tail_positions: array[int] = array("q")
        self.cursors: dict[int, int] = {}
        self._files = files
        self._file: OpenFile | None = None
        self._index: SegmentIndex | None = None
        self._index_at = self.index_interval_bytes
        self._reserved = 0
        self._reserve_bytes = RESERVE_BYTES_MIN

    def create(self, now_ms: int, index_interval_bytes: int) -> None:
        """Create the file; the caller syncs its directory entry."""
        self.index_interval_bytes = self._index_at = index_interval_bytes
        self.created_ms = now_ms
        self._index = SegmentIndex(self.base_offset)
        try:
            self._file = self._files.access.open_for_append(self.path, create=True)
        except OSError as error:
            raise storage_error(error, self.path) from error
        self._files.opened(self)

    def adopt(self, summary: SegmentSummary, index: SegmentIndex | None, *, checked: bool) -> None:
        """Open a file that is on disk; ``checked``: a scan has verified all its bytes."""
        self.size = summary.log_bytes
        self.until_offset = summary.until_offset
        self.max_timestamp = summary.max_timestamp
        self.offset_of_max_timestamp = summary.offset_of_max_timestamp
        self.verified.adopt(self.size, checked=checked)
        self._index = index
        self._index_at = self.size
        if index is None:  # the files on disk are trusted
            self.indexed_bytes, self.index_synced = self.size, True

    @property
    def summary(self) -> SegmentSummary:
        """What its index file records."""
        return SegmentSummary(
            self.base_offset,
            self.until_offset,
            self.size,
            self.max_timestamp,
            self.offset_of_max_timestamp,
        )

    @property
    def file(self) -> OpenFile:
        """The open file; opened again when it was closed."""
        self.used = True
        file = self._file
        if file is None:
            try:
                file = self._files.access.open_for_append(self.path, create=False)
            except OSError as error:
                raise unreadable(error, self.path) from None
            self._file = file
            self._files.opened(self)
        return file

    @property
    def file_access(self) -> FileAccess:
        """The calls on its file."""
        return self._files.access

    @property
    def index(self) -> SegmentIndex:
        """The entries; read from disk, or rebuilt from the log when their files are damaged."""
        index = self._index
        if index is None:
            try:
                summary, index = read_index(self.path)
                if summary != self.summary:
                    raise Corrupt("the index belongs to another state of the log")  # noqa: TRY301
            except (FileNotFoundError, Corrupt) as error:
                self.damage.append(Damage(self.path.with_suffix(".index"), 0, str(error)))
                index = _rebuilt_index(self)
            except OSError as error:
                raise unreadable(error, self.path) from None
            self._index = index
            if self.finished:
                self._files.indexed(self, index.size_bytes)
        return index

    def put_away(self) -> bool:
        """Close the descriptor until it is needed; not while bytes wait for a sync."""
        if not self.dirty:
            self._file = None
        return not self.dirty

    def drop_index(self) -> None:
        """Free the memory of the index; it is on disk."""
        self._index = None

    def finish(self) -> None:
        """Finish: release reserved space, write the indexes, drop the tail positions."""
        self.write_index()
        self.tail_offsets, self.tail_positions = array("q"), array("q")
        self.finished = True
        self._files.indexed(self, self.index.size_bytes)

    def write_index(self) -> None:
        """Release reserved space and bring the index files up to date."""
        try:
            if self._reserved:
                self._files.access.cut(self.file.fd, self.size)
                self._reserved = 0
            if self.indexed_bytes != self.size:
                self._save_index()
        except OSError as error:
            raise storage_error(error, self.path) from error

    def _save_index(self) -> None:
        write_index(self.path, self.summary, self.index)
        self.indexed_bytes, self.index_synced = self.size, False

    def forget(self) -> None:
        """The file is deleted or about to be; existing slices keep it open."""
        self.dirty = False
        self._files.closed(self)
        self._file = None

    def append(self, staged: list[StagedBatch], total_bytes: int) -> None:
        """Write whole batches at the end; on failure the file is as it was."""
        start = self.size
        file = self._file or self.file
        if start + total_bytes > self._reserved:
            self._reserve(file.fd, start + total_bytes)
        views = [batch[0] for batch in staged]
        access = self._files.access
        try:
            if len(views) > VIEWS_PER_WRITE_MAX or (
                access.pwritev(file.fd, views, start) != total_bytes
            ):
                _write_in_pieces(access, file.fd, views, start)
        except OSError as error:
            self._cut_back(file.fd, start)
            raise storage_error(error, self.path) from error
        self.dirty = True
        self._note(staged, start)

    def _note(self, staged: list[StagedBatch], position: int) -> None:
        offsets, positions = self.tail_offsets, self.tail_positions
        index_at = self._index_at
        latest = self.max_timestamp
        until = self.until_offset
        for view, base, until, timestamp in staged:
            offsets.append(base)
            positions.append(position)
            if position >= index_at:
                self.index.add(base, position, latest)
                index_at = position + self.index_interval_bytes
            position += len(view)
            if timestamp > latest:
                latest = timestamp
                self.offset_of_max_timestamp = until - 1
        self._index_at = index_at
        self.max_timestamp = latest
        self.until_offset = until
        self.size = position
        if len(offsets) > 2 * TAIL_BATCHES:
            del offsets[:-TAIL_BATCHES], positions[:-TAIL_BATCHES]

    def _cut_back(self, fd: int, size: int) -> None:
        self._reserved = 0
        try:
            self._files.access.cut(fd, size)
        except OSError as error:
            raise storage_error(error, self.path) from error

    def _reserve(self, fd: int, until: int) -> None:
        # In steps that double: a thousand idle streams must not reserve 64 MiB each. A disk that
        # cannot reserve is left to fail the write itself.
        if self.size - max(self.indexed_bytes, 0) >= SAVE_INDEX_BYTES:
            # A crash then costs a scan of what came after, not of the whole file.
            try:
                self._save_index()
            except OSError as error:
                raise storage_error(error, self.path) from error
        start = max(self._reserved, self.size)
        size = max(self._reserve_bytes, until - start)
        if self._files.space.take_ahead(size):
            self._files.access.reserve(fd, start, size)
        self._reserved = start + size
        self._reserve_bytes = min(self._reserve_bytes * 2, RESERVE_BYTES_MAX)

    def cut(self, until: int, position: int) -> None:
        """Drop all from a batch boundary on; the caller determines the largest timestamp again."""
        index = self.index
        index.cut(until)
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):  # they would describe dropped batches
            self.path.with_suffix(suffix).unlink(missing_ok=True)
        try:
            self._files.access.cut(self.file.fd, position)
        except OSError as error:
            raise storage_error(error, self.path) from error
        self._reserved = 0
        self.size = position
        self.until_offset = until
        self.indexed_bytes = -1
        self.verified.cut(position)
        self.cursors.clear()
        keep = bisect_left(self.tail_offsets, until)
        del self.tail_offsets[keep:], self.tail_positions[keep:]
        self._index_at = (index.positions[-1] if index.positions else 0) + self.index_interval_bytes
        self.finished = False

    def rules(self) -> scan.Rules:
        """The constraints on the stamps of its batches."""
        return scan.Rules(self.epoch, self.index if self.dense else None)

    def corrupt(self, bad: scan.BadBatch) -> Corrupt:
        """The error for a reader that found damage."""
        return Corrupt(
            f"{bad.cause}, at byte {bad.position}, offset {bad.offset}",
            subject=str(self.path),
            remedy="run `mainstem log verify`; restore the file from a replica or a backup",
        )


def _rebuilt_index(segment: Segment) -> SegmentIndex:
    if segment.dense:
        raise Corrupt("the index of a compacted segment is damaged", subject=str(segment.path))
    index = SegmentIndex(segment.base_offset)
    index_at = segment.index_interval_bytes
    latest = NO_TIMESTAMP
    try:
        for header, position in scan.check_file(
            segment.file.fd, 0, segment.size, segment.base_offset, segment.rules()
        ):
            if position >= index_at:
                index.add(header.base_offset, position, latest)
                index_at = position + segment.index_interval_bytes
            latest = max(latest, header.max_timestamp)
    except scan.BadBatch as bad:
        raise segment.corrupt(bad) from None
    return index


def _write_in_pieces(access: FileAccess, fd: int, views: list[memoryview], position: int) -> None:
    # Also continues after a short write: writing the same bytes again does no harm.
    left = list(views)
    while left:
        written = access.pwritev(fd, left[:VIEWS_PER_WRITE_MAX], position)
        position += written
        while left and written >= len(left[0]):
            written -= len(left.pop(0))
        if written:
            left[0] = left[0][written:]
