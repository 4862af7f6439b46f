"""Syncs are shared, run on threads, and a failed one ends everything."""

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.kit.log import Disk, fill

from mainstem.log.disk import group_commit
from mainstem.log.disk.file_access import FileAccess
from mainstem.log.disk.group_commit import GroupCommit
from mainstem.model.errors import ErrorCode, Unavailable

if TYPE_CHECKING:
    from mainstem.log.range_log import RangeLog


class SlowAccess(FileAccess):
    """Counts syncs, holds them back while told to, fails when told to."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.synced_files = 0
        self.synced_systems = 0
        self.failing = 0

    def sync_data(self, fd: int) -> None:
        assert self.gate.wait(10)
        if self.failing:
            raise OSError(self.failing, os.strerror(self.failing))
        self.synced_files += 1

    def sync_path(self, path: Path) -> None:
        assert self.gate.wait(10)
        super().sync_path(path)

    def sync_file_system(self, fd: int) -> None:
        assert self.gate.wait(10)
        if self.failing:
            raise OSError(self.failing, os.strerror(self.failing))
        self.synced_systems += 1


@pytest.fixture
def access() -> SlowAccess:
    return SlowAccess()


@pytest.fixture
def fatal() -> list[OSError]:
    """What a test does not take out fails it."""
    return []


@pytest.fixture
async def commits(access: SlowAccess, fatal: list[OSError]) -> AsyncIterator[GroupCommit]:
    commits = GroupCommit(asyncio.get_running_loop(), fatal.append, access)
    try:
        yield commits
        await asyncio.wait_for(commits.drain(), 10)
    finally:
        access.gate.set()
        commits.close()
    assert fatal == []


@pytest.mark.usefixtures("each_loop")
async def test_a_sync_moves_the_synced_end_and_tells_so(commits: GroupCommit, disk: Disk) -> None:
    log = disk.open()
    told: list[tuple[str, int]] = []
    log.sync_listeners.append(lambda log: told.append(("log", log.synced_end)))

    fill(log, 3)
    was_synced = log.directory_synced
    commits.request(log, lambda: told.append(("done", log.synced_end)))
    assert log.synced_end == 0
    await commits.drain()
    assert log.synced_end == 3
    assert (was_synced, log.directory_synced) == (False, True)
    assert told == [("log", 3), ("done", 3)]


async def test_what_arrives_during_a_sync_joins_the_next_one(
    commits: GroupCommit, access: SlowAccess, disk: Disk
) -> None:
    log = disk.open()
    ends: list[int] = []
    log.sync_listeners.append(lambda log: ends.append(log.synced_end))

    access.gate.clear()
    fill(log, 1)
    commits.request(log)
    for _ in range(50):
        fill(log, 1)
        commits.request(log)
    access.gate.set()
    await commits.drain()
    assert commits.rounds == 2
    assert ends == [1, 51]


async def test_a_sync_covers_only_what_was_written_when_it_started(
    commits: GroupCommit, access: SlowAccess, disk: Disk
) -> None:
    log = disk.open()

    access.gate.clear()
    fill(log, 2)
    commits.request(log)
    fill(log, 5)
    access.gate.set()
    await commits.drain()
    assert (log.synced_end, log.written_end) == (2, 7)


async def test_many_dirty_logs_share_one_sync_of_the_file_system(
    commits: GroupCommit, access: SlowAccess, disk: Disk
) -> None:
    count = group_commit.WHOLE_FILE_SYSTEM_ABOVE + 1
    logs = [disk.open(index=index) for index in range(count)]

    access.gate.clear()
    fill(logs[0], 1)
    commits.request(logs[0])
    for log in logs:
        fill(log, 1)
        commits.request(log)
    access.gate.set()
    await commits.drain()
    assert (access.synced_files, access.synced_systems) == (1, 1)
    assert all(log.synced_end == log.written_end for log in logs)
    assert all(log.directory_synced for log in logs)


async def test_few_dirty_logs_are_synced_one_by_one(
    commits: GroupCommit, access: SlowAccess, disk: Disk
) -> None:
    logs = [disk.open(index=index) for index in range(10)]

    access.gate.clear()
    for log in logs:
        fill(log, 1)
        commits.request(log)
    access.gate.set()
    await commits.drain()
    assert (access.synced_files, access.synced_systems) == (10, 0)
    assert all(log.synced_end == 1 for log in logs)


@pytest.mark.parametrize("count", [1, 3, group_commit.WHOLE_FILE_SYSTEM_ABOVE + 2])
async def test_a_failed_sync_is_fatal_and_never_retried(
    commits: GroupCommit, access: SlowAccess, fatal: list[OSError], disk: Disk, count: int
) -> None:
    logs = [disk.open(index=index) for index in range(count)]
    done: list[int] = []

    access.gate.clear()
    access.failing = errno.EIO
    for log in logs:
        fill(log, 1)
        commits.request(log, lambda: done.append(1))
    access.gate.set()
    await commits.drain()
    access.failing = 0
    with pytest.raises(Unavailable) as refusal:
        commits.request(logs[0])
    assert refusal.value.code is ErrorCode.STORAGE_FAILED
    assert [error.errno for error in fatal] == [errno.EIO]
    fatal.clear()
    assert done == []
    assert all(log.synced_end == 0 for log in logs)


async def test_a_log_that_is_dropped_during_its_sync_harms_nobody(
    commits: GroupCommit, access: SlowAccess, disk: Disk
) -> None:
    gone, kept = disk.open(index=0), disk.open(index=1)
    told: list[RangeLog] = []
    gone.sync_listeners.append(told.append)
    kept.sync_listeners.append(told.append)

    access.gate.clear()
    for log in (gone, kept):
        fill(log, 3)
        commits.request(log)
    commits.request(gone)
    disk.store.drop_range(gone)
    while disk.store.sweep():
        pass
    access.gate.set()
    await commits.drain()
    assert told == [kept]
    assert kept.synced_end == 3


async def test_a_log_that_is_closed_in_order_during_its_sync_is_durable(
    commits: GroupCommit, access: SlowAccess, disk: Disk
) -> None:
    log = disk.open()

    access.gate.clear()
    fill(log, 3)
    commits.request(log)
    log.close()
    access.gate.set()
    await commits.drain()
    assert log.synced_end == 3


async def test_callbacks_may_ask_for_more(commits: GroupCommit, disk: Disk) -> None:
    log = disk.open()
    left = [5]

    def again() -> None:
        if left[0]:
            left[0] -= 1
            fill(log, 1)
            commits.request(log, again)

    fill(log, 1)
    commits.request(log, again)
    await commits.drain()
    assert commits.rounds == 6
    assert log.synced_end == 6
