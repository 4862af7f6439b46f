"""What a node keeps is for its owner only."""

import asyncio
import os
import stat
from pathlib import Path

from tests.unit.streams.house import House

from mainstem.log.disk_watch import DiskWatch
from mainstem.streams.compaction_driver import CompactionDriver


def test_nobody_else_may_read_the_data_folder_or_a_file_in_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path / "data") as house:
            await house.create(internal_segment_bytes="1024", cleanup_policy="compact,delete")
            for _ in range(8):
                await house.write(b"x" * 600)
            compaction = CompactionDriver(
                house.streams, house.placement.service, house.store, house.clock, 1 << 20
            )
            await house.rolls.settled()
            await compaction.run_once()

    before = os.umask(0)  # as open as an operator can have it
    try:
        DiskWatch(tmp_path / "data", 8 << 20)
        asyncio.run(story())
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    shared = {path.name for path in files if path.stat().st_mode & 0o077}
    assert len(files) > 10
    assert not shared
