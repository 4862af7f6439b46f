"""One range replica on this disk: a directory of segments, appended to at the end, read anywhere.

    written_end   what ``append`` has passed to the kernel: survives the process
    synced_end    what ``group_commit`` has made durable: survives the machine

Owned by one thread. The directory is made at the first append; until its entries are durable
(``directory_synced``) nothing in it may be acknowledged as stored.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from mainstem.log.disk.checked_file import read_checked, write_checked
from mainstem.log.disk.file_access import FileAccess, storage_error
from mainstem.log.disk.sync_job import SyncJob, carry_out
from mainstem.log.identity import SNAPSHOT_KIND, RangeIdentity, RangeSeal
from mainstem.log.naming import INDEX_SUFFIX, OPENING_SNAPSHOT, TIME_INDEX_SUFFIX
from mainstem.log.segments.file_slice import FileSlice
from mainstem.log.segments.open_files import OpenFiles
from mainstem.log.segments.reader import bytes_between, checked_headers_from, read_slice
from mainstem.log.segments.segment import Segment, StagedBatch
from mainstem.log.segments.segment_list import SegmentList, SegmentSettings, must_roll
from mainstem.log.segments.time_search import find_by_time
from mainstem.log.verification.damage import Damage
from mainstem.log.verification.range_files import verify_range
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, Fenced, InvalidRequest, MainstemError, Unavailable
from mainstem.model.file_errors import FileErrorKind, classify, is_descriptor_shortage
from mainstem.model.records.batch import NO_TIMESTAMP, BatchHeader

__all__ = ["FileSlice", "RangeLog", "SegmentSettings", "StagedBatch", "SyncJob"]


class RangeLog:
    """A range that this node holds."""

    def __init__(
        self,
        identity: RangeIdentity,
        directory: Path,
        settings: SegmentSettings,
        clock: Clock,
        files: OpenFiles,
    ) -> None:
        self.identity = identity
        self.directory = directory
        self.settings = settings
        self.start_offset = identity.start_offset
        self.first_offset = identity.start_offset  # moves up when segments are trimmed
        self.written_end = identity.start_offset
        self.synced_end = identity.start_offset
        # An offset that is durable, and in which segment at which byte it stands.
        self.synced_place = (identity.start_offset, identity.start_offset, 0)
        self.sealed = False
        self.seal_pending = False  # accepts no appends, but its files do not record that yet
        self.missing = False  # sealed on another node and incomplete here: readers are refused
        self.found = False  # the files were there when the range was opened
        self.closed = False
        self.discarded = False
        self.size_bytes = 0
        self.max_timestamp = NO_TIMESTAMP
        self.offset_of_max_timestamp = -1
        self.directory_synced = False
        self.snapshot: bytes | None = None  # for the opening of a range that is not on disk yet
        self.sync_listeners: list[Callable[[RangeLog], None]] = []  # called after every sync
        self.on_cut: Callable[[RangeLog], None] | None = None  # just before a truncation
        self.on_closed: Callable[[RangeLog], None] | None = None
        self.damage: list[Damage] = []
        self._list = SegmentList(
            directory, identity.epoch, files, dense=identity.name.generation > 0
        )
        self.segments = self._list.segments
        self._clock = clock
        self._access: FileAccess = files.access
        self.unsynced_paths: list[Path] = []
        self._incarnation = 0  # counts truncations: a sync from before one does not count after it

    def adopt(self, segments: list[Segment], *, sealed: bool) -> None:
        """The directory exists and holds these segments, all of them durable."""
        self._list.adopt(segments)
        self.found = self.directory_synced = True
        self.sealed = sealed
        if segments:
            last = segments[-1]
            self.first_offset = segments[0].base_offset
            self.written_end = self.synced_end = last.until_offset
            self.synced_place = (last.until_offset, last.base_offset, last.size)
        self.size_bytes, self.max_timestamp, self.offset_of_max_timestamp = self._list.totals()

    def opening_snapshot(self) -> bytes | None:
        """The caller's state as of the start of the range; ``Corrupt`` when it is damaged."""
        if self.snapshot is None and self.directory_synced:
            try:
                return read_checked(self.directory / OPENING_SNAPSHOT, SNAPSHOT_KIND)
            except FileNotFoundError:
                return None
            except OSError as error:
                raise storage_error(error, self.directory) from error
        return self.snapshot

    def materialise(self) -> None:
        """Make the directory with its header and snapshot; a sync makes them durable."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            written = self.identity.write(self.directory)
            if self.snapshot is not None:
                path = self.directory / OPENING_SNAPSHOT
                write_checked(path, SNAPSHOT_KIND, self.snapshot, sync=False)
                written.append(path)
        except OSError as error:
            raise storage_error(error, self.directory) from error
        # The range, its partition, its topic, all topics, the data directory.
        self.unsynced_paths = [*written, self.directory, *self.directory.parents[:4]]

    def append(self, staged: list[StagedBatch]) -> None:
        """Write stamped batches that follow what is there; the bytes are borrowed for the call.

        Raises:
            Unavailable: the disk is full or failed; nothing has changed.
            Fenced: the range is sealed.
        """
        total = 0
        for batch in staged:
            total += len(batch[0])
        until = staged[-1][2]
        segments = self.segments
        if (
            not segments
            or self.sealed
            or self.closed
            or must_roll(segments[-1], total, until, self.settings, self._clock.wall_ms())
        ):
            self._append_rolling(staged)
        else:
            assert staged[0][1] == self.written_end or segments[-1].dense, "a gap between batches"
            segment = segments[-1]
            segment.append(staged, total)
            self.size_bytes += total
            if segment.max_timestamp > self.max_timestamp:
                self.max_timestamp = segment.max_timestamp
                self.offset_of_max_timestamp = segment.offset_of_max_timestamp
        self.written_end = until

    def _append_rolling(self, staged: list[StagedBatch]) -> None:
        """First append, and appends that reach into another segment: all of them or none."""
        if self.sealed or self.closed:
            raise Fenced(ErrorCode.RANGE_SEALED, subject=str(self.directory))
        if not self.directory_synced and not self.segments:
            self.materialise()
        assert staged[0][1] >= self.written_end, "batches that are there already"
        try:
            self._list.append_rolling(staged, self.settings, self._clock.wall_ms())
        except MainstemError:
            self._list.cut(self.written_end)
            raise
        finally:
            self.unsynced_paths.append(self.directory)
        self.size_bytes, self.max_timestamp, self.offset_of_max_timestamp = self._list.totals()

    @property
    def segment_count(self) -> int:
        """How many files hold the records."""
        return len(self.segments)

    def roll(self) -> None:
        """Finish the current segment now; the next append starts another."""
        if self.segments and self.segments[-1].size:
            self._list.finish_last()

    def begin_sync(self) -> SyncJob:
        """What has to be made durable now; the job keeps the files open."""
        files = []
        for segment in reversed(self.segments):  # only the end of the list can be dirty
            if not segment.dirty:
                break
            files.append(segment.file)
            segment.dirty = False
        paths = tuple(dict.fromkeys(self.unsynced_paths))
        self.unsynced_paths.clear()
        last = self.segments[-1] if self.segments else None
        place = (self.written_end, last.base_offset, last.size) if last else self.synced_place
        return SyncJob(self.written_end, place, self._incarnation, tuple(files), paths)

    def finish_sync(self, job: SyncJob) -> None:
        """The job was carried out."""
        self.directory_synced = self.directory_synced or self.directory in job.paths
        if job.incarnation == self._incarnation and job.until >= self.synced_end:
            self.synced_end = job.until
            self.synced_place = job.place

    def read(self, offset: int, *, max_bytes: int, until: int, min_one: bool) -> FileSlice | None:
        """Whole batches of one file from the one that holds ``offset``, none beyond ``until``.

        Raises:
            InvalidRequest: the offset lies below what is held.
            Corrupt: the bytes at the offset are damaged.
            Unavailable: the disk cannot be read, now or permanently.
        """
        until = min(until, self.written_end)
        if offset >= until:
            return None
        segment = self.segments[-1]
        if offset < segment.base_offset:
            if offset < self.first_offset:
                raise InvalidRequest(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"offset {offset} is below {self.first_offset}",
                    subject=str(self.identity.name.stream),
                )
            segment = self.segments[self._list.holding(offset)]
        return read_slice(segment, offset, max_bytes, until, min_one=min_one)

    def batches(
        self, start: int | None = None, *, skip_damage: bool = False
    ) -> Iterator[tuple[BatchHeader, int]]:
        """Headers and positions in their files, from the batch that holds ``start`` on.

        Every batch is checked; damage raises ``Corrupt``, or is left out with ``skip_damage``. A
        disk that cannot be read raises ``Unavailable`` in any case.
        """
        offset = self.first_offset if start is None else max(start, self.first_offset)
        if offset >= self.written_end:
            return
        for segment in self.segments[self._list.holding(offset) :]:
            first = max(offset, segment.base_offset)
            yield from checked_headers_from(segment, first, skip_damage=skip_damage)

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first record that is not older."""
        return find_by_time(self.segments, timestamp)

    def truncate(self, until: int) -> None:
        """Drop everything at or beyond an offset, which must be a batch boundary.

        Raises:
            Unavailable: a call failed; after DISK_FULL nothing was dropped.
        """
        if until >= self.written_end:
            return
        if until < self.first_offset or self.sealed:
            raise InvalidRequest(
                ErrorCode.INVALID_REQUEST,
                f"cannot cut [{self.first_offset}, {self.written_end}) at {until}",
                subject=str(self.directory),
            )
        if until < self.synced_end:  # a sync must not count what is about to be dropped
            before = (self.synced_end, self.synced_place)
            self.synced_end = until
            self.synced_place = (self.first_offset, self.first_offset, 0)
            try:
                if self.on_cut is not None:
                    self.on_cut(self)
            except Unavailable:
                self.synced_end, self.synced_place = before
                raise
        self._incarnation += 1
        self._list.cut(until)
        self.written_end = until
        if self.segments:
            last = self.segments[-1]
            last.dirty = True
            if until == self.synced_end:
                self.synced_place = (until, last.base_offset, last.size)
        self.unsynced_paths.append(self.directory)
        self.size_bytes, self.max_timestamp, self.offset_of_max_timestamp = self._list.totals()

    def trim(self, start: int) -> int:
        """Drop whole segments below an offset, never the last one; returns the bytes freed."""
        freed = self._list.drop_below(start)
        if freed:
            self.first_offset = self.segments[0].base_offset
            self.size_bytes, self.max_timestamp, self.offset_of_max_timestamp = self._list.totals()
        return freed

    def seal(self) -> None:
        """No more appends; data, indexes and directory are durable on return.

        Raises:
            Unavailable: a call failed. After DISK_FULL and OVERLOADED the call may be repeated;
                after any other code, as after any failed sync, the node must stop.
        """
        if self.sealed and not self.seal_pending:
            return
        self.begin_seal()
        if self.segments:
            _sync_now(self, self._access)
            self.end_seal(sync=True)

    def begin_seal(self) -> None:
        """Refuse further appends and write the indexes; the caller makes all that durable."""
        self.sealed = True
        self.seal_pending = bool(self.segments)
        self._list.finish_last()

    def end_seal(self, *, sync: bool = False) -> None:
        """All is durable: record on disk that the range is sealed, and what it holds."""
        if not self.segments:
            return
        self.finish_sync(self.begin_sync())
        try:
            seal_of(self).write(self.directory, sync=sync)
        except OSError as error:
            raise storage_error(error, self.directory) from error
        self.seal_pending = False

    def close(self, *, sync: bool = True, discard: bool = False) -> None:
        """Write the indexes and close the files.

        Without ``sync`` the caller makes all durable before it relies on it; ``discard`` is for a
        range that is going to be deleted.
        """
        if self.closed:
            return
        self.closed = True
        self.discarded = discard
        last = self.segments[-1] if self.segments else None
        try:
            if last is not None and not discard:
                if not last.finished:
                    last.write_index()
                if sync and not self.sealed:
                    _sync_now(self, self._access)
        finally:
            self._list.forget()
            if self.on_closed is not None:
                self.on_closed(self)

    def verify(self) -> list[Damage]:
        """Check every byte of every file of the range."""
        return verify_range(self.directory, self.segments)


def available_bytes(log: RangeLog, offset: int, until: int) -> int | None:
    """Bytes from the batch that holds ``offset`` up to ``until``; None: they are in two files."""
    until = min(until, log.written_end)
    if offset >= until:
        return 0
    for segment in reversed(log.segments):  # waiting readers are at the end
        if segment.base_offset <= offset:
            return None if until > segment.until_offset else bytes_between(segment, offset, until)
    return 0


def is_open_on_disk(log: RangeLog) -> bool:
    """Whether the files of a range do not record that it is sealed."""
    return not log.sealed or log.seal_pending


def seal_of(log: RangeLog) -> RangeSeal:
    """What is recorded on disk when a range is sealed."""
    return RangeSeal(
        log.written_end,
        log.size_bytes,
        log.max_timestamp,
        log.offset_of_max_timestamp,
        len(log.segments),
    )


def sealing_job(log: RangeLog) -> SyncJob:
    """All that has to be durable before a range may be recorded as sealed, its indexes too."""
    job = log.begin_sync()
    paths = [
        segment.path.with_suffix(suffix)
        for segment in log.segments
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
        if not segment.index_synced and segment.indexed_bytes >= 0
    ]
    if paths:
        paths.append(log.directory)
    return job._replace(paths=(*paths, *job.paths))


def take_back(log: RangeLog, job: SyncJob) -> None:
    """A job ended at a path that could not be opened: its paths belong to the next job."""
    log.unsynced_paths[:0] = job.paths


def sync_error(log: RangeLog, job: SyncJob, error: OSError) -> Unavailable:
    """The refusal for a failed job; one for lack of descriptors may be repeated."""
    if is_descriptor_shortage(error):
        take_back(log, job)
    elif classify(error) is FileErrorKind.TRANSIENT:
        # Bytes that a sync did not write for lack of memory may be lost.
        return Unavailable(
            ErrorCode.STORAGE_FAILED, f"{error.strerror}", subject=str(log.directory)
        )
    return storage_error(error, log.directory)


def end_sealing_job(log: RangeLog, job: SyncJob) -> None:
    """The job was carried out."""
    for segment in log.segments:
        segment.index_synced = True
    log.finish_sync(job)


def _sync_now(log: RangeLog, access: FileAccess) -> None:
    job = sealing_job(log)
    try:
        carry_out(job, access)
    except OSError as error:
        raise sync_error(log, job, error) from error
    end_sealing_job(log, job)
