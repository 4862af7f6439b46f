"""A process without free descriptors: requests are refused, files are neither lost nor damaged."""

import asyncio
import errno
import os

import pytest
from tests.kit.log import Disk, fill, no_free_descriptors, read_all, staged

from mainstem.log.disk.group_commit import GroupCommit
from mainstem.log.range_log import SegmentSettings
from mainstem.log.verification.scrubber import Scrubber
from mainstem.model.errors import ErrorCode, Unavailable
from mainstem.model.file_errors import FileErrorKind, classify
from mainstem.testing.simulation.faulty_files import FaultyFiles, FileFault

SMALL = SegmentSettings(segment_bytes=1_000, index_interval_bytes=100)


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, FileErrorKind.DISK_FULL),
        (errno.EDQUOT, FileErrorKind.DISK_FULL),
        (errno.EMFILE, FileErrorKind.TRANSIENT),
        (errno.ENFILE, FileErrorKind.TRANSIENT),
        (errno.ENOMEM, FileErrorKind.TRANSIENT),
        (errno.EIO, FileErrorKind.FAILED),
        (errno.EROFS, FileErrorKind.FAILED),
        (errno.ENOENT, FileErrorKind.FAILED),
    ],
)
def test_an_error_number_has_one_kind(number: int, kind: FileErrorKind) -> None:
    assert classify(OSError(number, os.strerror(number))) is kind


def test_a_first_append_is_refused_and_succeeds_later(disk: Disk) -> None:
    log = disk.open(SMALL)
    with no_free_descriptors(), pytest.raises(Unavailable) as refused:
        fill(log, 1)
    assert refused.value.code is ErrorCode.OVERLOADED
    assert read_all(log) == b""
    written = fill(log, 3)
    assert read_all(log) == written


def test_an_append_that_needs_a_new_segment_is_refused_and_succeeds_later(disk: Disk) -> None:
    log = disk.open(SMALL)
    written = fill(log, 1)
    with no_free_descriptors(), pytest.raises(Unavailable) as refused:
        log.append([staged(log.written_end + place, size=150) for place in range(20)])
    assert refused.value.code is ErrorCode.OVERLOADED
    assert read_all(log) == written
    written += fill(log, 20)
    assert read_all(log) == written
    disk.restart(clean=False)
    log = disk.open(SMALL)
    assert log.damage == []
    assert read_all(log) == written


def test_a_file_that_cannot_be_opened_now_is_not_damaged(disk: Disk) -> None:
    log = disk.open(SMALL)
    written = fill(log, 40)
    disk.restart()
    log = disk.open(SMALL)
    with no_free_descriptors(), pytest.raises(Unavailable) as refused:
        read_all(log)
    assert refused.value.code is ErrorCode.OVERLOADED
    assert read_all(log) == written
    assert log.damage == []


def test_a_range_that_cannot_be_opened_now_can_be_opened_later(disk: Disk) -> None:
    log = disk.open(SMALL)
    written = fill(log, 40)
    disk.restart(clean=False)
    with no_free_descriptors(), pytest.raises(Unavailable) as refused:
        disk.open(SMALL)
    assert refused.value.code is ErrorCode.OVERLOADED
    log = disk.open(SMALL)
    assert log.damage == []
    assert read_all(log) == written


def test_a_background_check_without_descriptors_reports_no_damage(disk: Disk) -> None:
    log = disk.open(SMALL)
    fill(log, 40)
    log.seal()
    disk.restart()
    log = disk.open(SMALL)
    found: list[object] = []
    scrubber = Scrubber(lambda: [log], found.append)
    assert scrubber.step() == 0
    with no_free_descriptors():
        assert scrubber.step() == 0
    assert found == []
    assert scrubber.step() > 0
    assert found == []


async def test_a_sync_that_cannot_open_its_folders_is_repeated(disk: Disk) -> None:
    async with asyncio.timeout(30):
        fatal: list[OSError] = []
        commits = GroupCommit(asyncio.get_running_loop(), fatal.append)
        log = disk.open(SMALL)
        fill(log, 3)
        with no_free_descriptors():
            commits.request(log)
            while commits.rounds < 3:  # noqa: ASYNC110 - rounds are counted, not announced
                await asyncio.sleep(0.01)
            assert log.synced_end == 0
            assert not log.directory_synced
        await asyncio.wait_for(commits.drain(), 10)
        commits.close()
        assert fatal == []
        assert log.synced_end == 3
        assert log.directory_synced


def test_a_seal_that_cannot_open_its_folders_is_refused(disk: Disk) -> None:
    log = disk.open(SMALL)
    fill(log, 3)
    with no_free_descriptors(), pytest.raises(Unavailable) as refused:
        log.seal()
    assert refused.value.code is ErrorCode.OVERLOADED


def test_a_dropped_range_is_gone_although_what_was_set_aside_cannot_be_looked_for(
    disk: Disk,
) -> None:
    log = disk.open(SMALL)
    fill(log, 3)
    with FaultyFiles() as files:  # closing the range would free descriptors
        files.begin(disk.path, FileFault.NO_DESCRIPTORS)
        disk.store.drop_range(log)
    assert not log.directory.exists()
    assert disk.store.logs == {}


def test_an_opening_state_that_cannot_be_read_now_is_not_damaged(disk: Disk) -> None:
    fill(disk.open(SMALL), 3)
    disk.restart()
    log = disk.open(SMALL)
    with no_free_descriptors(), pytest.raises(Unavailable) as refused:
        log.opening_snapshot()
    assert refused.value.code is ErrorCode.OVERLOADED
    assert log.opening_snapshot() == b"state of producers"
