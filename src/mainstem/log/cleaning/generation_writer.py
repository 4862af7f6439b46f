"""Writes the next generation of a range into a directory of its own, which appears at the end."""

import os
import shutil
from pathlib import Path

from mainstem.log.disk.checked_file import FILE_MODE, read_checked, write_checked
from mainstem.log.disk.file_access import FileAccess
from mainstem.log.identity import (
    RANGE_KIND,
    SNAPSHOT_KIND,
    RangeHeader,
    RangeSeal,
    pack_range_header,
)
from mainstem.log.naming import (
    OPENING_SNAPSHOT,
    RANGE_HEADER,
    UNFINISHED_SUFFIX,
    segment_path,
)
from mainstem.log.segments.index import RELATIVE_MAX, SegmentIndex, SegmentSummary, write_index
from mainstem.model.records.batch import NO_TIMESTAMP, BatchHeader, read_header

_BUFFER_BYTES = 1 << 20


class GenerationWriter:
    """Segments with dense indexes; nothing is visible before ``publish``."""

    def __init__(self, target: Path, source: RangeHeader, segment_bytes: int) -> None:
        self.target = target
        self.unfinished = target.with_name(target.name + UNFINISHED_SUFFIX)
        self.size_bytes = 0
        self.max_timestamp = NO_TIMESTAMP
        self.offset_of_max_timestamp = -1
        self.records_kept = 0
        self.records_removed = 0
        self._source = source
        self._segment_bytes = segment_bytes
        self._segment_count = 0
        self._path: Path | None = None
        self._index = SegmentIndex(0)
        self._summary = SegmentSummary(0, 0, 0)
        self._buffer = bytearray()
        self._fd = -1
        self.discard()
        self.unfinished.mkdir()

    def append(self, header: BatchHeader, content: bytes | memoryview, record_count: int) -> None:
        """Add what is left of a batch."""
        if self._fd < 0 or self._must_roll(header, len(content)):
            self._begin(header.base_offset)
        base, _, position, latest, latest_offset = self._summary
        self._index.add(header.base_offset, position, latest)
        timestamp = read_header(content).max_timestamp if record_count else NO_TIMESTAMP
        if timestamp > latest:
            latest, latest_offset = timestamp, header.until_offset - 1
        self._buffer += content
        self._summary = SegmentSummary(
            base, header.until_offset, position + len(content), latest, latest_offset
        )
        self.size_bytes += len(content)
        self.records_kept += record_count
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.offset_of_max_timestamp = header.until_offset - 1
        if len(self._buffer) >= _BUFFER_BYTES:
            self._flush()

    def finish(self, source: Path, until_offset: int) -> None:
        """All batches are in: close the files, copy header and snapshot, seal."""
        self._end_segment()
        header = self._source
        payload = pack_range_header(
            header.stream,
            (header.index, header.generation + 1, header.epoch),
            header.start_offset,
            header.directory_id,
        )
        write_checked(self.unfinished / RANGE_HEADER, RANGE_KIND, payload, sync=True)
        try:
            snapshot = read_checked(source / OPENING_SNAPSHOT, SNAPSHOT_KIND)
            write_checked(self.unfinished / OPENING_SNAPSHOT, SNAPSHOT_KIND, snapshot, sync=True)
        except FileNotFoundError:
            pass  # the range opened without one
        RangeSeal(
            until_offset,
            self.size_bytes,
            self.max_timestamp,
            self.offset_of_max_timestamp,
            self._segment_count,
        ).write(self.unfinished, sync=True)

    def publish(self) -> None:
        """Give the directory its name."""
        access = FileAccess()
        access.sync_path(self.unfinished)
        if self.target.exists():  # of an earlier attempt that the catalogue never listed
            shutil.rmtree(self.target)
        self.unfinished.rename(self.target)
        access.sync_path(self.target.parent)

    def discard(self) -> None:
        """Remove what was not published."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self.unfinished.exists():
            shutil.rmtree(self.unfinished)

    def _must_roll(self, header: BatchHeader, size: int) -> bool:
        summary = self._summary
        return summary.log_bytes > 0 and (
            summary.log_bytes + size > self._segment_bytes
            or header.until_offset - summary.base_offset > RELATIVE_MAX
        )

    def _begin(self, base_offset: int) -> None:
        self._end_segment()
        if self._segment_count == 0:
            base_offset = self._source.start_offset  # a reader may start at the start of the range
        self._path = segment_path(self.unfinished, base_offset)
        self._fd = os.open(
            self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE
        )
        self._index = SegmentIndex(base_offset)
        self._summary = SegmentSummary(base_offset, base_offset, 0)
        self._segment_count += 1

    def _end_segment(self) -> None:
        if self._fd < 0 or self._path is None:
            return
        self._flush()
        os.fsync(self._fd)
        os.close(self._fd)
        self._fd = -1
        write_index(self._path, self._summary, self._index)
        access = FileAccess()
        access.sync_path(self._path.with_suffix(".index"))
        access.sync_path(self._path.with_suffix(".timeindex"))

    def _flush(self) -> None:
        view = memoryview(self._buffer)
        while view:
            view = view[os.write(self._fd, view) :]
        view.release()
        self._buffer = bytearray()
