"""What a failed sync leaves behind is not taken for durable, on the same boot either."""

import asyncio
import errno
import os
from collections.abc import Sequence

import pytest
from tests.kit.log import Disk, fill, read_all

from mainstem.log.checkpoint import FileTrust
from mainstem.log.disk.file_access import FileAccess
from mainstem.log.disk.group_commit import GroupCommit
from mainstem.log.disk.sync_marker import MARKER
from mainstem.model.errors import MainstemError
from mainstem.model.records.batch import Buffer
from mainstem.testing.simulation.faulty_files import FaultyFiles, FileFault


class FailingSyncs(FileAccess):
    """Syncs fail while ``is_broken``; what is written is noted."""

    def __init__(self) -> None:
        self.is_broken = False
        self.written: list[tuple[int, int]] = []

    def pwritev(self, fd: int, views: Sequence[Buffer], position: int) -> int:
        count = super().pwritev(fd, views, position)
        self.written.append((position, count))
        return count

    def sync_data(self, fd: int) -> None:
        self._fail()
        super().sync_data(fd)

    def sync_file_system(self, fd: int) -> None:
        self._fail()
        super().sync_file_system(fd)

    def _fail(self) -> None:
        if self.is_broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.fixture
def access(disk: Disk) -> FailingSyncs:
    disk.access = access = FailingSyncs()
    disk.restart()
    return access


async def synced(disk: Disk, *, fails: bool) -> None:
    """Ask for one sync of the range."""

    fatal: list[BaseException] = []
    commits = GroupCommit(asyncio.get_running_loop(), fatal.append, disk.access)
    [log] = disk.store.logs.values()
    commits.request(log)
    await commits.drain()
    commits.close()
    assert bool(fatal) == fails


async def test_bytes_whose_sync_failed_are_in_doubt_after_a_restart_on_the_same_boot(
    disk: Disk, access: FailingSyncs
) -> None:
    log = disk.open()
    durable = fill(log, 3)
    await synced(disk, fails=False)
    disk.store.write_checkpoint()
    doubtful = fill(log, 2)
    access.is_broken = True
    await synced(disk, fails=True)
    access.is_broken = False
    access.written.clear()
    disk.restart(clean=False)
    assert disk.store.sync_failed
    assert disk.store.trust is FileTrust.OTHER_BOOT
    log = disk.open()
    # What can be read is written again, or the next sync would have nothing to write.
    assert access.written == [(len(durable), len(doubtful))]
    assert read_all(log) == durable + doubtful


async def test_it_is_forgotten_when_what_follows_from_it_is_recorded(
    disk: Disk, access: FailingSyncs
) -> None:
    fill(disk.open(), 3)
    access.is_broken = True
    await synced(disk, fails=True)
    access.is_broken = False
    disk.kill()
    seen = []
    for settle in (False, False, True):
        disk.store = disk.start(settle=settle)
        seen.append(disk.store.sync_failed)
        disk.kill()
    assert seen == [True, True, True]
    disk.store = disk.start()
    assert not disk.store.sync_failed
    assert disk.store.trust is FileTrust.SAME_BOOT


async def test_a_killed_process_is_no_failed_sync(disk: Disk, access: FailingSyncs) -> None:
    fill(disk.open(), 3)
    await synced(disk, fails=False)
    disk.restart(clean=False)
    assert not disk.store.sync_failed
    assert disk.store.trust is FileTrust.SAME_BOOT
    disk.kill()
    disk.store = disk.start(settle=False)  # killed while it starts
    disk.restart(clean=False)
    assert not disk.store.sync_failed
    assert access.written


def test_a_seal_whose_sync_fails_is_remembered(disk: Disk, access: FailingSyncs) -> None:
    log = disk.open()
    fill(log, 3)
    access.is_broken = True
    with pytest.raises(MainstemError):
        log.seal()
    access.is_broken = False
    assert not (disk.path / MARKER).exists()
    disk.restart(clean=False)
    assert disk.store.sync_failed


async def test_a_start_on_a_full_disk_notes_that_no_sync_has_failed_when_there_is_room(
    disk: Disk, access: FailingSyncs
) -> None:
    fill(disk.open(), 3)
    access.is_broken = True
    await synced(disk, fails=True)
    access.is_broken = False
    disk.kill()
    with FaultyFiles() as files:
        files.begin(disk.path, FileFault.FULL)
        disk.store = disk.start()
        assert disk.store.sync_failed
        assert not (disk.path / MARKER).exists()
        files.end(disk.path)
        disk.store.write_checkpoint()
        assert (disk.path / MARKER).exists()
    disk.restart(clean=False)
    assert not disk.store.sync_failed


async def test_a_checkpoint_does_not_make_a_failed_sync_forgotten(
    disk: Disk, access: FailingSyncs
) -> None:
    fill(disk.open(), 3)
    access.is_broken = True
    await synced(disk, fails=True)
    access.is_broken = False
    disk.store.write_checkpoint()
    disk.restart(clean=False)
    assert disk.store.sync_failed


def test_a_sync_that_fails_while_a_process_starts_is_remembered(
    disk: Disk, access: FailingSyncs
) -> None:
    fill(disk.open(), 3)
    disk.kill()
    access.on_sync_failed = None  # of the process before
    access.is_broken = True
    with pytest.raises(MainstemError):
        disk.start()
    disk.alive = False
    assert not (disk.path / MARKER).exists()
