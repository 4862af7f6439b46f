"""What is kept for metadata, and when records may be written."""

from pathlib import Path

import pytest

from mainstem.log.disk_space import DiskSpace, default_reserve
from mainstem.log.disk_watch import BALLAST, DiskWatch
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
    assert DiskSpace(1_000).has_room_for(10**12)


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
    assert space.has_room_for(1_100)
    assert not space.has_room_for(1_101)


def test_space_is_measured_when_as_much_was_written_as_was_free() -> None:
    space, looks = DiskSpace(1_000), list[int]()
    space.measure = lambda: looks.append(1)
    space.measured(10 * MIB)
    for _ in range(9):
        space.took(1 * MIB)
    assert not looks
    space.took(1 * MIB)
    assert looks


def test_the_watch_shows_what_is_free_and_keeps_a_ballast(tmp_path: Path) -> None:
    metrics = Metrics()
    watch = DiskWatch(tmp_path, 8 * MIB)
    watch.show_in(metrics)
    assert metrics.disk_free_bytes == watch.space.free_bytes > 0
    assert metrics.disk_full == 0
    assert (tmp_path / BALLAST).stat().st_blocks * 512 == 1 * MIB
    watch = DiskWatch(tmp_path, 2**62)  # as on a disk without space
    watch.show_in(metrics)
    assert metrics.disk_full == 1
    assert not (tmp_path / BALLAST).exists() or watch.space.free_bytes > watch.space.ballast_bytes
