"""Syncs are shared, run on threads, and a failed one ends everything."""

import asyncio
import errno
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uvloop
from tests.unit.log.kit import Disk, fill

from mainstem.log import group_commit
from mainstem.log.file_access import FileAccess
from mainstem.log.group_commit import GroupCommit
from mainstem.model.errors import ErrorCode, Unavailable

if TYPE_CHECKING:
    from mainstem.log.range_log import RangeLog

Story = Callable[[GroupCommit, "SlowAccess"], Awaitable[None]]


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


def run(story: Story, *, fast_loop: bool = False, fatal: list[OSError] | None = None) -> None:
    async def main() -> None:
        access = SlowAccess()
        errors: list[OSError] = []
        commits = GroupCommit(asyncio.get_running_loop(), errors.append, access)
        try:
            await story(commits, access)
            await asyncio.wait_for(commits.drain(), 10)
        finally:
            access.gate.set()
            commits.close()
        if fatal is None:
            assert errors == []
        else:
            fatal.extend(errors)

    loop = uvloop.new_event_loop() if fast_loop else asyncio.new_event_loop()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


@pytest.mark.parametrize("fast_loop", [False, True])
def test_a_sync_moves_the_synced_end_and_tells_so(disk: Disk, fast_loop: bool) -> None:
    log = disk.open()
    told: list[tuple[str, int]] = []
    log.on_synced = lambda log: told.append(("log", log.synced_end))

    async def story(commits: GroupCommit, _: SlowAccess) -> None:
        fill(log, 3)
        assert not log.directory_synced
        commits.request(log, lambda: told.append(("done", log.synced_end)))
        assert log.synced_end == 0
        await commits.drain()

    run(story, fast_loop=fast_loop)
    assert log.synced_end == 3
    assert log.directory_synced
    assert told == [("log", 3), ("done", 3)]


def test_what_arrives_during_a_sync_joins_the_next_one(disk: Disk) -> None:
    log = disk.open()
    ends: list[int] = []
    log.on_synced = lambda log: ends.append(log.synced_end)

    async def story(commits: GroupCommit, access: SlowAccess) -> None:
        access.gate.clear()
        fill(log, 1)
        commits.request(log)
        for _ in range(50):
            fill(log, 1)
            commits.request(log)
        access.gate.set()
        await commits.drain()
        assert commits.rounds == 2

    run(story)
    assert ends == [1, 51]


def test_a_sync_covers_only_what_was_written_when_it_started(disk: Disk) -> None:
    log = disk.open()

    async def story(commits: GroupCommit, access: SlowAccess) -> None:
        access.gate.clear()
        fill(log, 2)
        commits.request(log)
        fill(log, 5)
        access.gate.set()
        await commits.drain()

    run(story)
    assert (log.synced_end, log.written_end) == (2, 7)


def test_many_dirty_logs_share_one_sync_of_the_file_system(disk: Disk) -> None:
    count = group_commit.WHOLE_FILE_SYSTEM_ABOVE + 1
    logs = [disk.open(index=index) for index in range(count)]

    async def story(commits: GroupCommit, access: SlowAccess) -> None:
        access.gate.clear()
        fill(logs[0], 1)
        commits.request(logs[0])
        for log in logs:
            fill(log, 1)
            commits.request(log)
        access.gate.set()
        await commits.drain()
        assert (access.synced_files, access.synced_systems) == (1, 1)

    run(story)
    assert all(log.synced_end == log.written_end for log in logs)
    assert all(log.directory_synced for log in logs)


def test_few_dirty_logs_are_synced_one_by_one(disk: Disk) -> None:
    logs = [disk.open(index=index) for index in range(10)]

    async def story(commits: GroupCommit, access: SlowAccess) -> None:
        access.gate.clear()
        for log in logs:
            fill(log, 1)
            commits.request(log)
        access.gate.set()
        await commits.drain()
        assert (access.synced_files, access.synced_systems) == (10, 0)

    run(story)
    assert all(log.synced_end == 1 for log in logs)


@pytest.mark.parametrize("count", [1, 3, group_commit.WHOLE_FILE_SYSTEM_ABOVE + 2])
def test_a_failed_sync_is_fatal_and_never_retried(disk: Disk, count: int) -> None:
    logs = [disk.open(index=index) for index in range(count)]
    done: list[int] = []
    fatal: list[OSError] = []

    async def story(commits: GroupCommit, access: SlowAccess) -> None:
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

    run(story, fatal=fatal)
    assert [error.errno for error in fatal] == [errno.EIO]
    assert done == []
    assert all(log.synced_end == 0 for log in logs)


def test_a_log_that_is_dropped_during_its_sync_harms_nobody(disk: Disk) -> None:
    gone, kept = disk.open(index=0), disk.open(index=1)
    told: list[RangeLog] = []
    gone.on_synced = kept.on_synced = told.append

    async def story(commits: GroupCommit, access: SlowAccess) -> None:
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

    run(story)
    assert told == [kept]
    assert kept.synced_end == 3


def test_a_log_that_is_closed_in_order_during_its_sync_is_durable(disk: Disk) -> None:
    log = disk.open()

    async def story(commits: GroupCommit, access: SlowAccess) -> None:
        access.gate.clear()
        fill(log, 3)
        commits.request(log)
        log.close()
        access.gate.set()
        await commits.drain()

    run(story)
    assert log.synced_end == 3


def test_callbacks_may_ask_for_more(disk: Disk) -> None:
    log = disk.open()
    left = [5]

    async def story(commits: GroupCommit, _: SlowAccess) -> None:
        def again() -> None:
            if left[0]:
                left[0] -= 1
                fill(log, 1)
                commits.request(log, again)

        fill(log, 1)
        commits.request(log, again)
        await commits.drain()
        assert commits.rounds == 6

    run(story)
    assert log.synced_end == 6
