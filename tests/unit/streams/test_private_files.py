"""What a node keeps is for its owner only."""

import os
import stat
from pathlib import Path

from tests.kit.streams import StreamNode

from mainstem.log.disk.space_monitor import DiskSpaceMonitor
from mainstem.streams.maintenance.compaction_driver import CompactionDriver


async def test_nobody_else_may_read_the_data_folder_or_a_file_in_it(tmp_path: Path) -> None:
    before = os.umask(0)  # as open as an operator can have it
    try:
        DiskSpaceMonitor(tmp_path / "data", 8 << 20)
        async with StreamNode(tmp_path / "data") as node:
            await node.create(internal_segment_bytes="1024", cleanup_policy="compact,delete")
            for _ in range(8):
                await node.write(b"x" * 600)
            compaction = CompactionDriver(
                node.streams, node.placement.service, node.store, node.clock, 1 << 20
            )
            await node.rolls.settled()
            await compaction.run_once()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    files = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    shared = {path.name for path in files if path.stat().st_mode & 0o077}
    assert len(files) > 10
    assert not shared
