"""What a failed sync leaves behind is not taken for durable, on the same boot either."""

import asyncio
import errno
import os
from collections.abc import Sequence

import pytest
from tests.unit.log.kit import Disk, fill, read_all

from mainstem.log.checkpoint import Trust
from mainstem.log.file_access import FileAccess
from mainstem.log.group_commit import GroupCommit
from mainstem.log.sync_marker import MARKER
from mainstem.model.batch import Buffer
from mainstem.model.errors import MainstemError


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


def synced(disk: Disk, *, fails: bool) -> None:
    """Ask for one sync of the range."""

    async def story() -> None:
        fatal: list[BaseException] = []
        commits = GroupCommit(asyncio.get_running_loop(), fatal.append, disk.access)
        [log] = disk.store.logs.values()
        commits.request(log)
        await commits.drain()
        commits.close()
        assert bool(fatal) == fails

    asyncio.run(story())


def test_bytes_whose_sync_failed_are_in_doubt_after_a_restart_on_the_same_boot(
    disk: Disk, access: FailingSyncs
) -> None:
    log = disk.open()
    durable = fill(log, 3)
    synced(disk, fails=False)
    disk.store.write_checkpoint()
    doubtful = fill(log, 2)
    access.is_broken = True
    synced(disk, fails=True)
    access.is_broken = False
    access.written.clear()
    disk.restart(clean=False)
    assert disk.store.sync_failed
    assert disk.store.trust is Trust.OTHER_BOOT
    log = disk.open()
    # What can be read is written again, or the next sync would have nothing to write.
    assert access.written == [(len(durable), len(doubtful))]
    assert read_all(log) == durable + doubtful


def test_it_is_forgotten_when_what_follows_from_it_is_recorded(
    disk: Disk, access: FailingSyncs
) -> None:
    fill(disk.open(), 3)
    access.is_broken = True
    synced(disk, fails=True)
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
    assert disk.store.trust is Trust.SAME_BOOT


def test_a_killed_process_is_no_failed_sync(disk: Disk, access: FailingSyncs) -> None:
    fill(disk.open(), 3)
    synced(disk, fails=False)
    disk.restart(clean=False)
    assert not disk.store.sync_failed
    assert disk.store.trust is Trust.SAME_BOOT
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
