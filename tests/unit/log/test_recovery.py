"""Opening after a crash: cut what was torn, keep what was durable, report what is damaged."""

import errno
import os
from pathlib import Path

import pytest
from tests.kit.log import Disk, fill, read_all, staged

from mainstem.log.checkpoint import FileTrust
from mainstem.log.disk.file_access import FileAccess
from mainstem.log.disk.sync_job import carry_out
from mainstem.log.range_log import RangeLog, SegmentSettings
from mainstem.log.segments import segment
from mainstem.model.errors import Corrupt, Unavailable

SMALL = SegmentSettings(segment_bytes=1_000, index_interval_bytes=200)


def sync(disk: Disk, log: RangeLog) -> None:
    job = log.begin_sync()
    carry_out(job, disk.access)
    log.finish_sync(job)


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x20
    path.write_bytes(data)


def whole_batches(log: RangeLog) -> list[tuple[int, int]]:
    return [(header.base_offset, position) for header, position in log.batches()]


@pytest.mark.parametrize("machine_down", [False, True])
@pytest.mark.parametrize("tail", [b"", bytes(300), b"\xff" * 77], ids=["cut", "zeros", "noise"])
def test_a_tail_torn_at_any_byte_is_cut_to_whole_batches(
    disk: Disk, machine_down: bool, tail: bytes
) -> None:
    log = disk.open()
    content = fill(log, 4, size=5)
    size = len(content) // 4
    path = log.segments[0].path
    disk.kill()
    for cut in range(len(content) + 1):
        path.write_bytes(content[:cut] + tail)
        if machine_down:
            disk.boot_id += "x"
        disk.store = disk.start()
        log = disk.open()
        left = content[:cut] + tail  # a tail of zeros may happen to complete a batch
        whole = sum(left.startswith(content[: (place + 1) * size]) for place in range(4))
        assert log.written_end == log.synced_end == whole
        assert read_all(log) == content[: whole * size]
        assert log.damage == []
        assert path.stat().st_size == log.size_bytes
        disk.kill()
        path.write_bytes(content)


def test_after_a_torn_tail_writing_goes_on(disk: Disk) -> None:
    log = disk.open(SMALL)
    content = fill(log, 30)
    path = log.segments[-1].path
    disk.kill()
    os.truncate(path, path.stat().st_size - 10)
    disk.store = disk.start()
    log = disk.open(SMALL)
    assert log.written_end == 29
    batch = staged(29, size=40)
    log.append([batch])
    assert read_all(log) == content[: len(content) // 30 * 29] + bytes(batch[0])


def test_a_clean_stop_spares_the_scan(disk: Disk) -> None:
    log = disk.open(SMALL)
    content = fill(log, 30)
    disk.restart()
    log = disk.open(SMALL)
    assert all(segment.verified.prefix == 0 for segment in log.segments)
    assert read_all(log) == content
    assert all(segment.verified.prefix == segment.size for segment in log.segments)


def test_after_a_crash_only_the_last_segment_is_scanned(disk: Disk) -> None:
    log = disk.open(SMALL)
    fill(log, 30)
    disk.restart(clean=False)
    log = disk.open(SMALL)
    prefixes = [segment.verified.prefix for segment in log.segments]
    assert prefixes == [0] * (len(prefixes) - 1) + [log.segments[-1].size]


def test_after_a_power_loss_everything_behind_the_recovery_point_is_scanned(disk: Disk) -> None:
    log = disk.open(SMALL)
    fill(log, 20)
    sync(disk, log)
    disk.store.write_checkpoint()
    point = log.synced_place
    fill(log, 20)
    disk.restart(clean=False, machine_down=True)
    log = disk.open(SMALL)
    assert any(part.base_offset > point[1] for part in log.segments)
    for part in log.segments:
        if part.base_offset != point[1]:
            assert part.verified.prefix == (part.size if part.base_offset > point[1] else 0)


def test_a_power_loss_in_an_earlier_segment_takes_the_later_ones(disk: Disk) -> None:
    log = disk.open(SMALL)
    content = fill(log, 40)
    second = log.segments[1]
    disk.kill()
    os.truncate(second.path, second.size // 2)
    disk.boot_id += "x"
    disk.store = disk.start()
    log = disk.open(SMALL)
    assert log.segment_count == 2
    assert log.damage == []
    assert content.startswith(read_all(log))
    assert list(log.directory.glob("*.aside"))
    fill(log, 40)
    assert log.written_end > 40


def test_batches_behind_a_torn_one_are_set_aside_after_a_power_loss(disk: Disk) -> None:
    log = disk.open()
    content = fill(log, 10)
    path = log.segments[0].path
    size = len(content) // 10
    disk.kill()
    path.write_bytes(content[: 4 * size] + bytes(size) + content[5 * size :])
    disk.boot_id += "x"
    disk.store = disk.start()
    log = disk.open()
    assert log.written_end == 4
    [aside] = log.directory.glob("*.aside")
    assert aside.read_bytes() == bytes(size) + content[5 * size :]


@pytest.mark.parametrize("machine_down", [False, True])
@pytest.mark.parametrize("place", range(0, 95, 7))
def test_damage_in_what_was_durable_is_kept_and_reported(
    disk: Disk, machine_down: bool, place: int
) -> None:
    log = disk.open()
    content = fill(log, 10)
    sync(disk, log)
    disk.store.write_checkpoint()
    size = len(content) // 10
    path = log.segments[0].path
    disk.kill()
    flip(path, 4 * size + place)
    if machine_down:
        disk.boot_id += "x"
    disk.store = disk.start()
    log = disk.open()
    assert [(damage.path, damage.offset) for damage in log.damage] == [(path, 4)]
    assert log.written_end == 10
    before = log.read(0, max_bytes=1 << 20, until=10, min_one=True)
    assert before is not None
    assert before.read() == content[: 4 * size]
    with pytest.raises(Corrupt) as error:
        log.read(4, max_bytes=1 << 20, until=10, min_one=True)
    assert str(path) in str(error.value)
    assert f"at byte {4 * size}" in str(error.value)
    assert read_all(log, 5) == content[5 * size :]
    more = fill(log, 3)
    assert read_all(log, 5) == content[5 * size :] + more
    assert [damage.position for damage in log.verify()] == [4 * size]
    with pytest.raises(Corrupt):
        list(log.batches())
    bases = [header.base_offset for header, _ in log.batches(skip_damage=True)]
    assert bases == [0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12]


@pytest.mark.parametrize("cut_batches", [1, 6])
def test_a_durable_end_that_is_missing_is_damage_and_its_offsets_are_not_reused(
    disk: Disk, cut_batches: int
) -> None:
    log = disk.open()
    content = fill(log, 10)
    sync(disk, log)
    disk.store.write_checkpoint()
    size = len(content) // 10
    path = log.segments[0].path
    disk.kill()
    os.truncate(path, (10 - cut_batches) * size)
    disk.store = disk.start()
    log = disk.open()
    assert log.written_end == 10
    assert [damage.offset for damage in log.damage] == [10 - cut_batches]
    more = fill(log, 3)
    assert read_all(log, 10) == more
    assert log.read(0, max_bytes=1 << 20, until=13, min_one=True) is not None
    disk.restart()
    log = disk.open()
    assert log.written_end == 13
    assert read_all(log, 10) == more


def test_a_durable_end_of_noise_is_damage_as_well(disk: Disk) -> None:
    log = disk.open()
    content = fill(log, 10)
    sync(disk, log)
    disk.store.write_checkpoint()
    size = len(content) // 10
    path = log.segments[0].path
    disk.kill()
    path.write_bytes(content[: 8 * size] + bytes(2 * size))
    disk.store = disk.start()
    log = disk.open()
    assert log.written_end == 10
    assert len(log.damage) == 1
    with pytest.raises(Corrupt):
        log.read(8, max_bytes=1 << 20, until=10, min_one=True)
    more = fill(log, 2)
    assert read_all(log, 10) == more


def test_a_truncation_moves_the_recovery_point_back_first(disk: Disk) -> None:
    log = disk.open(SMALL)
    content = fill(log, 40)
    sync(disk, log)
    disk.store.write_checkpoint()
    log.truncate(11)
    disk.restart(clean=False)
    log = disk.open(SMALL)
    assert log.damage == []
    assert log.written_end == 11
    assert read_all(log) == content[: len(content) // 40 * 11]


def test_an_index_that_is_gone_is_rebuilt(disk: Disk) -> None:
    log = disk.open(SMALL)
    content = fill(log, 40)
    paths = [segment.path.with_suffix(".index") for segment in log.segments]
    disk.stop()
    for path in paths:
        path.unlink()
    disk.store = disk.start()
    log = disk.open(SMALL)
    assert log.written_end == 40
    assert {damage.path for damage in log.damage} == set(paths)
    assert read_all(log) == content
    disk.restart()
    log = disk.open(SMALL)
    assert log.damage == []
    assert read_all(log) == content


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_damaged_index_never_misleads(disk: Disk, suffix: str) -> None:
    log = disk.open(SMALL)
    content = fill(log, 40)
    path = log.segments[1].path.with_suffix(suffix)
    sound = path.read_bytes()
    disk.stop()
    for position in range(len(sound)):
        flip(path, position)
        disk.store = disk.start()
        log = disk.open(SMALL)
        assert read_all(log, max_bytes=300) == content
        assert log.offset_for_timestamp(155) == (16, 160)
        found = [*log.damage, *(damage for segment in log.segments for damage in segment.damage)]
        assert found
        disk.stop()
        path.write_bytes(sound)


@pytest.fixture
def saves_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A growing segment saves its index every few batches instead of every 64 MiB."""
    monkeypatch.setattr(segment, "SAVE_INDEX_BYTES", 400)
    monkeypatch.setattr(segment, "RESERVE_BYTES_MIN", 300)
    monkeypatch.setattr(segment, "RESERVE_BYTES_MAX", 300)


@pytest.mark.usefixtures("saves_often")
@pytest.mark.parametrize("machine_down", [False, True])
def test_a_saved_index_spares_most_of_the_scan(disk: Disk, machine_down: bool) -> None:
    settings = SegmentSettings(index_interval_bytes=200)
    log = disk.open(settings)
    content = fill(log, 30)
    sync(disk, log)
    disk.store.write_checkpoint()
    content += fill(log, 20)
    saved = log.segments[0].indexed_bytes
    assert 0 < saved < len(content)
    disk.restart(clean=False, machine_down=machine_down)
    log = disk.open(settings)
    verified = log.segments[0].verified
    trusted = not machine_down or saved <= len(content) * 30 // 50
    assert verified.covers(saved if trusted else 0, len(content))
    assert not verified.covers(0, len(content)) or not trusted
    assert (log.written_end, log.max_timestamp, log.damage) == (50, 490, [])
    assert read_all(log, max_bytes=300) == content
    assert [log.offset_for_timestamp(time) for time in (0, 255, 490)] == [
        (0, 0),
        (26, 260),
        (49, 490),
    ]
    content += fill(log, 5)
    assert read_all(log) == content
    assert log.verify() == []


@pytest.mark.usefixtures("saves_often")
def test_a_saved_index_does_not_outlive_a_truncation(disk: Disk) -> None:
    log = disk.open()
    fill(log, 50)
    assert log.segments[0].indexed_bytes > 0
    log.truncate(3)
    assert not list(log.directory.glob("*index"))
    fill(log, 40, size=11)
    content = read_all(log)
    disk.restart(clean=False)
    log = disk.open()
    assert read_all(log, max_bytes=200) == content
    assert log.damage == []


def test_an_index_of_batches_that_were_cut_is_not_believed_later(disk: Disk) -> None:
    log = disk.open()
    fill(log, 3)
    log.roll()  # writes the index
    path = log.segments[0].path
    disk.kill()
    path.write_bytes(b"")
    disk.boot_id += "x"
    disk.store = disk.start()
    log = disk.open()
    assert log.written_end == 0
    for base in range(3):
        log.append([staged(base, timestamp=7)])
    disk.restart(clean=False)
    log = disk.open()
    assert (log.written_end, log.max_timestamp) == (3, 7)


class Recorder(FileAccess):
    """Notes what is made durable."""

    def __init__(self) -> None:
        self.synced: list[str] = []
        self.is_gone = False

    def sync_data(self, fd: int) -> None:
        self.synced.append(Path(f"/proc/self/fd/{fd}").readlink().name)

    def sync_file_system(self, fd: int) -> None:
        if self.is_gone:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.synced.append("everything")


def test_what_a_crash_left_unsynced_is_synced_before_it_is_shown(disk: Disk) -> None:
    log = disk.open()
    fill(log, 3)
    recorder = disk.access = Recorder()
    disk.restart(clean=False)
    log = disk.open()
    assert log.synced_end == 3
    # Its header, and segments before the last one, were perhaps in the kernel's memory only.
    assert recorder.synced == ["everything", log.segments[0].path.name]


def test_a_stop_is_clean_only_after_everything_is_durable(disk: Disk) -> None:
    recorder = disk.access = Recorder()
    disk.restart(clean=False)
    fill(disk.open(), 3)
    recorder.is_gone = True
    with pytest.raises(Unavailable):
        disk.stop()
    os.close(disk.store._lock)
    recorder.is_gone = False
    disk.store = disk.start()
    assert disk.store.sync_failed
    assert disk.store.trust is FileTrust.OTHER_BOOT


@pytest.mark.usefixtures("saves_often")
def test_damage_below_a_saved_index_is_found_when_it_is_read(disk: Disk) -> None:
    log = disk.open()
    content = fill(log, 50)
    path = log.segments[0].path
    disk.kill()
    flip(path, 150)
    disk.store = disk.start()
    log = disk.open()
    assert log.written_end == 50
    with pytest.raises(Corrupt):
        log.read(1, max_bytes=1 << 20, until=50, min_one=True)
    size = len(content) // 50
    assert read_all(log, 40) == content[40 * size :]


def test_leftovers_of_a_deletion_or_a_write_are_removed(disk: Disk) -> None:
    log = disk.open(SMALL)
    content = fill(log, 30)
    disk.stop()
    first = sorted(log.directory.glob("*.log"))[0]
    first.unlink()  # as a trim does first
    (log.directory / "00000000000000000009.index.tmp").write_bytes(b"half")
    disk.store = disk.start()
    log = disk.open(SMALL)
    assert log.damage == []
    assert content.endswith(read_all(log))
    names = {path.name for path in log.directory.iterdir()}
    assert not [name for name in names if name.startswith(first.stem) or name.endswith(".tmp")]


def test_the_header_of_another_range_is_refused(disk: Disk) -> None:
    log = disk.open()
    fill(log, 3)
    directory = log.directory
    disk.stop()
    other = directory.with_name("range-1.g0")
    directory.rename(other)
    disk.store = disk.start()
    with pytest.raises(Corrupt) as error:
        disk.open(index=1)
    assert "range 0.g0" in str(error.value)


def test_another_start_or_epoch_is_refused(disk: Disk) -> None:
    log = disk.open(start_offset=5)
    fill(log, 3)
    disk.restart()
    with pytest.raises(Corrupt):
        disk.open(start_offset=6)


def test_a_directory_without_batches_is_made_anew(disk: Disk) -> None:
    log = disk.open()
    log.materialise()
    (log.directory / "range.header").write_bytes(b"torn")
    disk.restart(clean=False)
    log = disk.open()
    content = fill(log, 2)
    assert read_all(log) == content


@pytest.mark.parametrize("left_bytes", [None, 0, 7])
def test_a_range_whose_header_was_never_on_disk_is_taken_up(
    disk: Disk, left_bytes: int | None
) -> None:
    log = disk.open()
    content = fill(log, 3)
    disk.kill()
    for name in ("range.header", "opening.snapshot"):
        path = log.directory / name
        path.unlink() if left_bytes is None else os.truncate(path, left_bytes)
    disk.restart(clean=False, machine_down=True)
    log = disk.open()
    assert read_all(log) == content
    assert log.opening_snapshot() is None
    disk.restart()
    assert read_all(disk.open()) == content


def test_a_header_that_was_on_disk_and_is_cut_is_damage(disk: Disk) -> None:
    log = disk.open()
    fill(log, 3)
    log.finish_sync(log.begin_sync())
    disk.store.write_checkpoint()
    os.truncate(log.directory / "range.header", 0)
    disk.restart(clean=False, machine_down=True)
    with pytest.raises(Corrupt):
        disk.open()


def test_a_header_that_is_cut_while_the_machine_runs_is_damage(disk: Disk) -> None:
    log = disk.open()
    fill(log, 3)
    os.truncate(log.directory / "range.header", 0)
    disk.restart(clean=False)
    with pytest.raises(Corrupt):
        disk.open()


def test_a_damaged_snapshot_is_corrupt(disk: Disk) -> None:
    log = disk.open()
    fill(log, 3)
    disk.restart()
    log = disk.open()
    assert log.opening_snapshot() == b"state of producers"
    flip(log.directory / "opening.snapshot", 25)
    with pytest.raises(Corrupt):
        log.opening_snapshot()


@pytest.mark.parametrize("machine_down", [False, True])
def test_a_range_that_was_begun_anew_is_not_measured_by_what_was_there_before(
    disk: Disk, machine_down: bool
) -> None:
    log = disk.open()
    fill(log, 30)
    sync(disk, log)
    disk.store.write_checkpoint()
    disk.store.drop_range(log)
    again = disk.open()
    content = fill(again, 10)
    disk.kill()
    if machine_down:
        disk.boot_id += "x"
    disk.store = disk.start()
    log = disk.open()
    assert log.damage == []
    assert log.written_end == 10
    assert read_all(log) == content


def test_a_log_that_lost_its_end_can_be_cut_where_nothing_is_left(disk: Disk) -> None:
    log = disk.open()
    content = fill(log, 30)
    sync(disk, log)
    disk.store.write_checkpoint()
    path = log.segments[0].path
    disk.kill()
    os.truncate(path, len(content) // 30 * 20)
    disk.store = disk.start()
    log = disk.open()
    assert (log.written_end, len(log.damage)) == (30, 1)
    log.truncate(25)
    assert log.written_end == log.synced_end == 25
    log.truncate(15)
    assert log.written_end == 15
    assert read_all(log) == content[: len(content) // 30 * 15]
