"""The segments of one range in order: which one holds an offset, where the next one starts."""

from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path

from mainstem.log.naming import INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_path
from mainstem.log.segments.index import RELATIVE_MAX
from mainstem.log.segments.open_files import OpenFiles
from mainstem.log.segments.reader import batch_start, headers_from
from mainstem.log.segments.segment import Segment, StagedBatch
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.limits import GIB
from mainstem.model.records.batch import NO_TIMESTAMP

_FILE_BYTES_MAX = 2**32 - 1  # positions in an index have four bytes


@dataclass(frozen=True, slots=True)
class SegmentSettings:
    """How the files of a range are cut: Kafka's ``segment.*`` and ``index.*`` topic settings."""

    segment_bytes: int = 1 * GIB
    segment_ms: int = 7 * 24 * 3600 * 1000
    index_interval_bytes: int = 4096


class SegmentList:
    """Files of one directory; the last one may grow, all before it are finished."""

    __slots__ = ("_bases", "_dense", "_directory", "_epoch", "_files", "segments")

    def __init__(self, directory: Path, epoch: int, files: OpenFiles, *, dense: bool) -> None:
        self.segments: list[Segment] = []
        self._bases: list[int] = []
        self._directory = directory
        self._epoch = epoch
        self._dense = dense
        self._files = files

    def adopt(self, segments: list[Segment]) -> None:
        """Use the segments that are on disk."""
        self.segments[:] = segments
        self._bases = [segment.base_offset for segment in segments]

    def holding(self, offset: int) -> int:
        """The place of the segment with an offset, or of the next one that holds anything."""
        segments = self.segments
        place = max(0, bisect_right(self._bases, offset) - 1)
        while segments[place].until_offset <= offset and place + 1 < len(segments):
            place += 1  # compaction may leave nothing of the end of a segment
        return place

    def append_rolling(
        self, staged: list[StagedBatch], settings: SegmentSettings, now_ms: int
    ) -> None:
        """Append, starting other segments where the settings require them."""
        run: list[StagedBatch] = []
        run_bytes = 0
        for batch in staged:
            size = len(batch[0])
            last = self.segments[-1] if self.segments else None
            if last is None or _is_full(last, run_bytes, batch, settings, now_ms):
                if last is not None and run:
                    last.append(run, run_bytes)
                    run, run_bytes = [], 0
                self.begin(batch[1], now_ms, settings.index_interval_bytes)
            run.append(batch)
            run_bytes += size
        self.segments[-1].append(run, run_bytes)

    def begin(self, base_offset: int, now_ms: int, index_interval_bytes: int) -> None:
        """Finish the last segment and start another."""
        self.finish_last()
        path = segment_path(self._directory, base_offset)
        segment = Segment(path, base_offset, self._epoch, self._files)
        segment.dense = self._dense
        segment.create(now_ms, 1 if self._dense else index_interval_bytes)
        self.segments.append(segment)
        self._bases.append(base_offset)

    def finish_last(self) -> None:
        """Refuse appends to the last segment."""
        if self.segments and not self.segments[-1].finished:
            self.segments[-1].finish()

    def cut(self, until: int) -> None:
        """Drop everything from a batch boundary on; the first file stays, with the start offset."""
        while len(self.segments) > 1 and self.segments[-1].base_offset >= until:
            self._bases.pop()
            self._delete(self.segments.pop())
        if self.segments and self.segments[-1].until_offset > until:
            self._cut_last(until)

    def _cut_last(self, until: int) -> None:
        segment = self.segments[-1]
        base, position = batch_start(segment, until)
        if position == segment.size:
            base = until  # the end is damaged: nothing stands there
        if base != until:
            raise InvalidRequest(
                ErrorCode.INVALID_REQUEST,
                f"offset {until} lies inside the batch at {base}",
                subject=str(segment.path),
            )
        segment.cut(until, position)
        segment.max_timestamp, segment.offset_of_max_timestamp = NO_TIMESTAMP, -1
        for header, _ in headers_from(segment, segment.base_offset):
            if header.max_timestamp > segment.max_timestamp:
                segment.max_timestamp = header.max_timestamp
                segment.offset_of_max_timestamp = header.until_offset - 1

    def drop_below(self, start: int) -> int:
        """Delete whole segments below an offset, never the last one; returns the bytes freed."""
        freed = 0
        while len(self.segments) > 1 and self.segments[1].base_offset <= start:
            segment = self.segments.pop(0)
            self._bases.pop(0)
            freed += segment.size
            self._delete(segment)
        return freed

    def forget(self) -> None:
        """Close all files."""
        for segment in self.segments:
            segment.forget()

    def totals(self) -> tuple[int, int, int]:
        """Bytes, largest timestamp and its offset."""
        size = sum(segment.size for segment in self.segments)
        latest, offset = NO_TIMESTAMP, -1
        for segment in self.segments:
            if segment.max_timestamp > latest:
                latest, offset = segment.max_timestamp, segment.offset_of_max_timestamp
        return size, latest, offset

    @staticmethod
    def _delete(segment: Segment) -> None:
        # The log first: an index without a log is swept away on opening, the reverse looks damaged.
        segment.forget()
        for path in (
            segment.path,
            segment.path.with_suffix(INDEX_SUFFIX),
            segment.path.with_suffix(TIME_INDEX_SUFFIX),
        ):
            path.unlink(missing_ok=True)


def must_roll(
    segment: Segment, size_bytes: int, until: int, settings: SegmentSettings, now_ms: int
) -> bool:
    """Whether bytes up to an offset go into another segment; an empty one takes anything."""
    size = segment.size + size_bytes
    return segment.finished or (
        segment.size > 0
        and (
            size > settings.segment_bytes
            or now_ms - segment.created_ms >= settings.segment_ms
            or until - segment.base_offset > RELATIVE_MAX
            or size > _FILE_BYTES_MAX
        )
    )


def _is_full(
    segment: Segment, waiting_bytes: int, batch: StagedBatch, settings: SegmentSettings, now_ms: int
) -> bool:
    """The same while ``waiting_bytes`` are about to be written to the segment."""
    size = waiting_bytes + len(batch[0])
    if waiting_bytes and not segment.size and not segment.finished:
        return size > settings.segment_bytes or batch[2] - segment.base_offset > RELATIVE_MAX
    return must_roll(segment, size, batch[2], settings, now_ms)
