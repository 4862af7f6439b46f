"""What is kept for metadata, and when records may be written."""

import asyncio
import errno
import os
from pathlib import Path

import pytest

from mainstem.log.disk.file_access import FileAccess
from mainstem.log.disk.space import DiskSpace, default_reserve
from mainstem.log.disk.space_monitor import BALLAST, DiskSpaceMonitor
from mainstem.log.segments.open_files import OpenFiles
from mainstem.log.segments.segment import Segment
from mainstem.model.limits import GIB, MIB
from mainstem.telemetry.metrics import Metrics


@pytest.mark.parametrize(
    ("total", "reserve"),
    [
        (10 * MIB, 1 * MIB),
        (160 * MIB, 16 * MIB),
        (500 * MIB, 16 * MIB),
        (20 * GIB, 20 * GIB // 50),
        (4_000 * GIB, 1 * GIB),
    ],
)
def test_the_reserve_follows_the_size_of_the_file_system(total: int, reserve: int) -> None:
    assert default_reserve(total) == reserve


def test_without_a_measurement_there_is_room() -> None:
    assert not DiskSpace(1_000).is_low
    assert DiskSpace(1_000).has_space_for(10**12)


def test_room_is_there_again_only_well_above_the_reserve() -> None:
    space = DiskSpace(1_000)
    states = []
    for free in (1_000, 999, 1_000, 1_249, 1_250, 1_000, 0):
        space.measured(free)
        states.append(space.is_low)
    assert states == [False, True, True, True, False, False, True]


def test_a_failed_write_counts_until_a_probe_can_be_written() -> None:
    space = DiskSpace(1_000)
    space.measured(10**9)
    seen = []
    for probed in (False, True):
        space.failed()
        space.measured(10**9, is_writable=probed)
        seen.append((space.is_low, space.is_probe_wanted))
    assert seen == [(True, True), (False, False)]


def test_a_rewrite_leaves_half_of_the_reserve() -> None:
    space = DiskSpace(1_000)
    space.measured(1_600)
    assert space.has_space_for(1_100)
    assert not space.has_space_for(1_101)


def test_space_is_allocated_ahead_only_where_twice_the_reserve_stays_free() -> None:
    space = DiskSpace(10 * MIB)
    assert space.take_ahead(10**12)  # not measured yet
    space.measured(50 * MIB)
    assert space.take_ahead(20 * MIB)
    assert space.take_ahead(10 * MIB)
    assert not space.take_ahead(1 * MIB)  # of the 20 MiB that would be free
    space.measured(50 * MIB)  # what was allocated is not free any more, and known by now
    assert space.take_ahead(30 * MIB)
    space.failed()
    assert not space.take_ahead(1)


def test_many_segments_that_allocate_ahead_leave_the_reserve(tmp_path: Path) -> None:
    class Allocations(FileAccess):
        total_bytes = 0

        def reserve(self, fd: int, start: int, size: int) -> bool:
            self.total_bytes += size
            return True

    space, access = DiskSpace(100 * MIB), Allocations()
    space.measured(300 * MIB)
    files = OpenFiles(access, 1_000, space)
    for number in range(100):
        segment = Segment(tmp_path / f"{number}.log", 0, 1, files)
        segment.create(0, 4096)
        for _ in range(4):
            data = memoryview(bytes(1 * MIB))
            segment.append([(data, 0, 1, 0)], len(data))
    assert 50 * MIB < access.total_bytes <= 100 * MIB


def test_space_is_measured_when_as_much_was_written_as_was_free() -> None:
    space, looks = DiskSpace(1_000), list[int]()
    space.measure = lambda: looks.append(1)
    space.measured(10 * MIB)
    for _ in range(9):
        space.count_written(1 * MIB)
    assert not looks
    space.count_written(1 * MIB)
    assert looks


@pytest.mark.parametrize(
    "code", [errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT, errno.EIO]
)
async def test_a_ballast_that_cannot_be_made_is_made_later(
    tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, refusals = os.open, [code] * 3

    def refusing(path: object, *rest: object) -> int:
        if str(path).endswith(BALLAST) and refusals:
            raise OSError(refusals.pop(), os.strerror(code))
        return real(path, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refusing)
    watch = DiskSpaceMonitor(tmp_path, 8 * MIB)  # a node that starts
    assert not (tmp_path / BALLAST).exists()
    assert watch.space.free_bytes > 0
    assert not watch.space.is_low, "records need no ballast"
    await wait_for_measurements(watch, times=3)  # a node that runs
    assert (tmp_path / BALLAST).stat().st_blocks * 512 == 1 * MIB


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOSPC, errno.EIO])
async def test_a_probe_that_cannot_be_written_means_no_room_yet(
    tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = DiskSpaceMonitor(tmp_path, 8 * MIB)
    watch.space.failed()
    refusals = [code]
    real = Path.write_bytes

    def refusing(path: Path, data: bytes) -> int:
        if refusals:
            raise OSError(refusals.pop(), os.strerror(code))
        return real(path, data)

    monkeypatch.setattr(Path, "write_bytes", refusing)
    await wait_for_measurements(watch, times=1)
    assert watch.space.is_low
    await wait_for_measurements(watch, times=1)
    assert not watch.space.is_low


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOMEM, errno.EIO])
async def test_free_space_that_cannot_be_measured_is_as_it_was(
    tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = DiskSpaceMonitor(tmp_path, 8 * MIB)
    before = watch.space.free_bytes
    real, refusals = os.statvfs, [code, code]

    def refusing(path: object) -> os.statvfs_result:
        if refusals:
            raise OSError(refusals.pop(), os.strerror(code))
        return real(path)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "statvfs", refusing)
    watch.measure_now()
    assert (watch.space.free_bytes, watch.space.is_low) == (before, False)
    await wait_for_measurements(watch, times=2)
    assert not refusals
    assert not watch.space.is_low


async def wait_for_measurements(watch: DiskSpaceMonitor, times: int) -> None:
    """Run a watch until it has measured so often; whatever ends it ends this."""
    seen = asyncio.Semaphore(0)
    measured = watch.space.measured

    def counted(free_bytes: int, *, is_writable: bool = True) -> None:
        measured(free_bytes, is_writable=is_writable)
        seen.release()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mainstem.log.disk.space_monitor.INTERVAL_S", 0.01)
        patch.setattr("mainstem.log.disk.space_monitor.NEAR_INTERVAL_S", 0.01)
        patch.setattr(DiskSpace, "measured", lambda space, free, **rest: counted(free, **rest))
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            running = group.create_task(watch.run())
            for _ in range(times):
                await seen.acquire()
            running.cancel()


def test_the_watch_shows_what_is_free_and_keeps_a_ballast(tmp_path: Path) -> None:
    metrics = Metrics()
    watch = DiskSpaceMonitor(tmp_path, 8 * MIB)
    watch.show_in(metrics)
    assert metrics.disk_free_bytes == watch.space.free_bytes > 0
    assert metrics.disk_full == 0
    assert (tmp_path / BALLAST).stat().st_blocks * 512 == 1 * MIB
    watch = DiskSpaceMonitor(tmp_path, 2**62)  # as on a disk without space
    watch.show_in(metrics)
    assert metrics.disk_full == 1
    assert not (tmp_path / BALLAST).exists() or watch.space.free_bytes > watch.space.ballast_bytes
