"""One range on disk: appending, rolling, reading, shortening, sealing."""

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.kit.log import Disk, fill, read_all, staged

from mainstem.log.disk.file_access import FileAccess
from mainstem.log.disk.sync_job import carry_out
from mainstem.log.range_log import RangeLog, SegmentSettings, available_bytes
from mainstem.log.segments.segment import VIEWS_PER_WRITE_MAX
from mainstem.model.errors import Corrupt, ErrorCode, Fenced, InvalidRequest, Unavailable
from mainstem.model.records.batch import Buffer
from mainstem.testing.simulation.faulty_files import FaultyFiles, FileFault

SMALL = SegmentSettings(segment_bytes=1_000, index_interval_bytes=200)


def test_nothing_is_on_disk_before_the_first_append(disk: Disk) -> None:
    log = disk.open()
    assert not log.directory.exists()
    assert (log.start_offset, log.written_end, log.synced_end) == (0, 0, 0)
    assert log.read(0, max_bytes=100, until=10, min_one=True) is None
    assert log.opening_snapshot() == b"state of producers"


def test_what_is_appended_is_read_back_byte_for_byte(disk: Disk) -> None:
    log = disk.open()
    written = fill(log, 30, records=3)
    assert log.written_end == 90
    assert log.size_bytes == len(written)
    assert read_all(log) == written


def test_one_call_takes_many_batches(disk: Disk) -> None:
    log = disk.open()
    batches = [staged(base) for base in range(3 * VIEWS_PER_WRITE_MAX // 2)]
    log.append(batches)
    assert read_all(log) == b"".join(batch[0] for batch in batches)


def test_appended_bytes_are_only_borrowed(disk: Disk) -> None:
    log = disk.open()
    batch = staged(0)
    original = bytes(batch[0])
    log.append([batch])
    batch[0][:] = bytes(len(batch[0]))
    assert read_all(log) == original


def test_segments_roll_by_size_between_batches(disk: Disk) -> None:
    log = disk.open(SMALL)
    fill(log, 100)
    assert log.segment_count > 5
    for segment in log.segments[:-1]:
        assert segment.size <= 1_000
        assert segment.path.stat().st_size == segment.size


def test_a_batch_larger_than_a_segment_has_one_for_itself(disk: Disk) -> None:
    log = disk.open(SMALL)
    fill(log, 1)
    log.append([staged(1, size=5_000), staged(2)])
    assert [segment.base_offset for segment in log.segments] == [0, 1, 2]


def test_segments_roll_by_age(disk: Disk) -> None:
    log = disk.open(SegmentSettings(segment_ms=1_000))
    fill(log, 2)
    disk.clock.now_ms += 999
    fill(log, 1)
    assert log.segment_count == 1
    disk.clock.now_ms += 1
    fill(log, 1)
    assert [segment.base_offset for segment in log.segments] == [0, 3]


def test_a_slice_holds_the_batch_that_contains_the_offset(disk: Disk) -> None:
    log = disk.open()
    fill(log, 10, records=5)
    piece = log.read(12, max_bytes=1, until=50, min_one=True)
    assert piece is not None
    assert (piece.start_offset, piece.until_offset) == (10, 15)
    assert len(piece) == len(piece.read())


def test_a_slice_stops_at_the_committed_end(disk: Disk) -> None:
    log = disk.open()
    fill(log, 10)
    piece = log.read(3, max_bytes=1 << 20, until=7, min_one=True)
    assert piece is not None
    assert piece.until_offset == 7
    assert log.read(7, max_bytes=1 << 20, until=7, min_one=True) is None


def test_a_batch_that_is_too_large_comes_only_when_one_is_wanted(disk: Disk) -> None:
    log = disk.open()
    fill(log, 3, size=500)
    assert log.read(1, max_bytes=100, until=3, min_one=False) is None
    piece = log.read(1, max_bytes=100, until=3, min_one=True)
    assert piece is not None
    assert (piece.start_offset, piece.until_offset) == (1, 2)


@pytest.mark.parametrize("max_bytes", [1, 150, 333, 1_000, 5_000])
@pytest.mark.parametrize("interval", [1, 300, 10_000])
def test_every_offset_is_found_whatever_the_index(
    disk: Disk, max_bytes: int, interval: int
) -> None:
    log = disk.open(SegmentSettings(segment_bytes=3_000, index_interval_bytes=interval))
    written = fill(log, 60, records=2)
    size = len(written) // 60
    disk.restart()  # so that nothing is remembered
    log = disk.open(SegmentSettings(segment_bytes=3_000, index_interval_bytes=interval))
    for offset in range(120):
        piece = log.read(offset, max_bytes=max_bytes, until=120, min_one=True)
        assert piece is not None
        assert piece.start_offset == offset // 2 * 2
        assert piece.read() == written[offset // 2 * size :][: len(piece)]
        assert len(piece) <= max(max_bytes, size)
    assert read_all(log, max_bytes=max_bytes) == written


def test_offsets_below_the_first_are_refused(disk: Disk) -> None:
    log = disk.open(SMALL)
    fill(log, 50)
    freed = log.trim(30)
    assert freed > 0
    assert 0 < log.first_offset <= 30
    with pytest.raises(InvalidRequest) as refusal:
        log.read(0, max_bytes=100, until=50, min_one=True)
    assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.start_offset == 0


def test_trimming_never_takes_the_last_segment(disk: Disk) -> None:
    log = disk.open(SMALL)
    fill(log, 50)
    log.trim(1_000)
    assert log.segment_count == 1
    fill(log, 1)
    assert log.written_end == 51


def test_a_slice_outlives_its_segment(disk: Disk) -> None:
    log = disk.open(SMALL)
    written = fill(log, 50)
    piece = log.read(0, max_bytes=500, until=50, min_one=True)
    assert piece is not None
    log.trim(50)
    disk.store.drop_range(log)
    assert piece.read() == written[: len(piece)]
    os.fstat(piece.fd)


def test_the_number_of_open_files_is_bounded(disk: Disk) -> None:
    log = disk.open(SMALL)
    written = fill(log, 400)
    assert log.segment_count > 20
    carry_out(job := log.begin_sync(), disk.access)
    log.finish_sync(job)
    del job  # it keeps its files open
    disk.store.write_checkpoint()
    assert open_descriptors(log) == len(disk.store.files) <= 8
    for _ in range(2):
        assert read_all(log, max_bytes=400) == written
        assert open_descriptors(log) == len(disk.store.files) <= 8


def open_descriptors(log: RangeLog) -> int:
    held = [entry.readlink() for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    return sum(path.parent == log.directory for path in held)


def test_a_file_that_waits_for_its_sync_stays_open(disk: Disk) -> None:
    log = disk.open(SMALL)
    fill(log, 200)
    assert log.segment_count > 8
    disk.store.files.shrink()
    assert open_descriptors(log) == log.segment_count
    assert len(log.begin_sync().files) == log.segment_count


def test_a_sealed_range_refuses_appends_and_stays_sealed(disk: Disk) -> None:
    log = disk.open()
    written = fill(log, 5)
    log.seal()
    with pytest.raises(Fenced):
        log.append([staged(5)])
    with pytest.raises(InvalidRequest):
        log.truncate(2)
    assert log.synced_end == 5
    disk.restart(clean=False, machine_down=True)
    log = disk.open()
    assert log.sealed
    assert read_all(log) == written


def test_many_ranges_are_sealed_together(disk: Disk) -> None:
    logs = [disk.open(index=index) for index in range(6)]
    for log in logs[:-1]:
        fill(log, 3)
    disk.store.seal(logs)
    assert all(log.sealed for log in logs)
    disk.restart(clean=False, machine_down=True)
    for index in range(5):
        log = disk.open(index=index)
        assert log.sealed
        assert log.damage == []
    assert not disk.open(index=5).sealed  # nothing was ever written to it


def test_truncation_drops_whole_batches(disk: Disk) -> None:
    log = disk.open(SMALL)
    written = fill(log, 50)
    log.truncate(20)
    assert log.written_end == 20
    assert log.max_timestamp == 190
    assert log.offset_of_max_timestamp == 19
    again = fill(log, 5)
    size = len(written) // 50
    assert read_all(log)[: size * 10] == written[: size * 10]
    assert read_all(log).endswith(again)


def test_truncation_inside_a_batch_is_refused(disk: Disk) -> None:
    log = disk.open()
    fill(log, 5, records=4)
    with pytest.raises(InvalidRequest):
        log.truncate(6)
    assert log.written_end == 20


def test_a_sync_from_before_a_truncation_proves_nothing_after_it(disk: Disk) -> None:
    log = disk.open()
    fill(log, 10)
    job = log.begin_sync()
    log.truncate(4)
    fill(log, 3)
    log.finish_sync(job)
    assert log.synced_end == 0
    job = log.begin_sync()
    log.finish_sync(job)
    assert log.synced_end == 7


def test_reserved_space_is_given_back(disk: Disk) -> None:
    log = disk.open()
    fill(log, 10)
    segment = log.segments[0]
    assert segment.path.stat().st_blocks * 512 >= 1 << 20
    log.close()
    assert segment.path.stat().st_blocks * 512 < 1 << 20


def test_timestamps_are_found_exact_to_the_record(disk: Disk) -> None:
    log = disk.open(SMALL)
    for base in range(0, 300, 3):
        log.append([staged(base, 3, timestamp=base * 10, codec=base % 5)])
    assert log.offset_for_timestamp(-1) == (0, 0)
    assert log.offset_for_timestamp(1_501) == (151, 1_501)
    assert log.offset_for_timestamp(1_503) == (153, 1_530)
    assert log.offset_for_timestamp(2_972) == (299, 2_972)
    assert log.offset_for_timestamp(2_973) is None
    assert (log.max_timestamp, log.offset_of_max_timestamp) == (2_972, 299)


def test_times_that_go_back_do_not_confuse_the_search(disk: Disk) -> None:
    log = disk.open(SegmentSettings(index_interval_bytes=1))
    for base, time in enumerate([50, 10, 70, 20, 90, 5]):
        log.append([staged(base, timestamp=time)])
    assert log.offset_for_timestamp(15) == (0, 50)
    assert log.offset_for_timestamp(60) == (2, 70)
    assert log.offset_for_timestamp(80) == (4, 90)
    assert log.offset_for_timestamp(91) is None


def test_the_first_of_equal_times_is_found(disk: Disk) -> None:
    log = disk.open(SegmentSettings(index_interval_bytes=1))
    for base in range(9):
        log.append([staged(base, timestamp=10 * (base // 3))])
    assert [log.offset_for_timestamp(time) for time in (0, 10, 20)] == [(0, 0), (3, 10), (6, 20)]


def test_headers_are_walked_from_any_offset(disk: Disk) -> None:
    log = disk.open(SMALL)
    fill(log, 40, records=2)
    assert [header.base_offset for header, _ in log.batches()] == list(range(0, 80, 2))
    assert [header.base_offset for header, _ in log.batches(37)] == list(range(36, 80, 2))
    assert list(log.batches(80)) == []


class FailingAccess(FileAccess):
    """A disk that takes so many bytes and no more."""

    def __init__(self, room_bytes: int, number: int = errno.ENOSPC) -> None:
        self.room_bytes = room_bytes
        self.number = number
        self.short = False

    def pwritev(self, fd: int, views: Sequence[Buffer], position: int) -> int:
        data = b"".join(views)
        if self.short:
            self.short = False
            return super().pwritev(fd, [data[: len(data) // 2]], position)
        if len(data) > self.room_bytes:
            super().pwritev(fd, [data[: self.room_bytes]], position)
            raise OSError(self.number, os.strerror(self.number))
        self.room_bytes -= len(data)
        return super().pwritev(fd, views, position)


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, ErrorCode.DISK_FULL),
        (errno.EDQUOT, ErrorCode.DISK_FULL),
        (errno.EIO, ErrorCode.STORAGE_FAILED),
    ],
)
@pytest.mark.parametrize("room_bytes", [0, 60, 200, 700, 1_500, 2_600])
def test_a_full_disk_is_an_answer_and_leaves_nothing_behind(
    disk: Disk, room_bytes: int, number: int, code: ErrorCode
) -> None:
    disk.access = FailingAccess(1 << 30, number)
    disk.restart()
    log = disk.open(SMALL)
    written = fill(log, 10)
    before = (log.written_end, log.size_bytes, log.max_timestamp, log.segment_count)
    disk.access.room_bytes = room_bytes
    with pytest.raises(Unavailable) as refusal:
        log.append([staged(log.written_end + place, size=150) for place in range(20)])
    assert refusal.value.code is code
    assert (log.written_end, log.size_bytes, log.max_timestamp, log.segment_count) == before
    assert sum(path.stat().st_size for path in log.directory.glob("*.log")) == len(written)
    disk.access.room_bytes = 1 << 30
    written += fill(log, 20)
    assert read_all(log) == written
    disk.restart(clean=False)
    log = disk.open(SMALL)
    assert log.damage == []
    assert read_all(log) == written


def test_a_full_disk_leaves_no_half_batch_in_a_large_segment(disk: Disk) -> None:
    disk.access = FailingAccess(1 << 30)
    disk.restart()
    log = disk.open()
    written = fill(log, 5)
    disk.access.room_bytes = 100
    with pytest.raises(Unavailable):
        log.append([staged(5, size=200)])
    assert log.segments[0].path.stat().st_size == len(written)
    disk.access.room_bytes = 1 << 30
    written += fill(log, 2)
    assert read_all(log) == written


def test_a_disk_that_is_full_from_the_start_takes_the_range_later(disk: Disk) -> None:
    disk.access = FailingAccess(0)
    disk.restart()
    log = disk.open(SMALL)
    for _ in range(2):
        with pytest.raises(Unavailable):
            log.append([staged(0)])
    assert log.size_bytes == 0
    disk.access.room_bytes = 1 << 20
    written = fill(log, 3)
    assert read_all(log) == written


def test_a_short_write_is_completed(disk: Disk) -> None:
    disk.access = FailingAccess(1 << 30)
    disk.restart()
    log = disk.open()
    disk.access.short = True
    batches = [staged(base) for base in range(7)]
    log.append(batches)
    assert read_all(log) == b"".join(batch[0] for batch in batches)


def test_a_file_that_disappeared_is_corrupt(disk: Disk) -> None:
    log = disk.open(SMALL)
    fill(log, 50)
    disk.restart()
    log = disk.open(SMALL)
    log.segments[0].path.unlink()
    with pytest.raises(Corrupt):
        log.read(0, max_bytes=100, until=50, min_one=True)


def test_a_slice_that_the_disk_does_not_give_says_so(disk: Disk) -> None:
    log = disk.open()
    fill(log, 3)
    piece = log.read(0, max_bytes=1_000, until=3, min_one=True)
    assert piece is not None
    piece.fd = os.open(disk.path, os.O_RDONLY)  # what is not a file gives no bytes
    try:
        with pytest.raises(Unavailable) as refused:
            piece.read()
    finally:
        os.close(piece.fd)
    assert refused.value.code is ErrorCode.STORAGE_FAILED


def test_a_disk_that_cannot_be_read_is_an_answer_and_no_damage(disk: Disk) -> None:
    log = disk.open(SMALL)
    written = fill(log, 40)
    disk.restart()
    log = disk.open(SMALL)
    assert all(segment.index.size_bytes for segment in log.segments)  # read before the disk fails
    reads: list[Callable[[], object]] = [
        lambda: log.read(0, max_bytes=100, until=40, min_one=True),
        lambda: list(log.batches()),
        lambda: list(log.batches(skip_damage=True)),
        lambda: log.offset_for_timestamp(1),
        lambda: available_bytes(log, log.segments[-1].base_offset, log.written_end - 1),
    ]
    with FaultyFiles() as files:
        files.begin(disk.path, FileFault.READS_FAIL)
        for read in reads:
            with pytest.raises(Unavailable) as refused:
                read()
            assert refused.value.code is ErrorCode.STORAGE_FAILED
    assert read_all(log) == written
    assert log.damage == []
