"""Background work that finds no free descriptor is done another time, and ends nothing."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.kit.log import Disk, fill, no_free_descriptors

from mainstem.model.ids import NodeId
from mainstem.streams.maintenance.garbage_driver import GarbageDriver
from mainstem.streams.maintenance.retention_driver import RetentionDriver

NOTHING: Any = None


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


async def test_garbage_is_looked_for_another_time(disk: Disk) -> None:
    fill(disk.open(), 3)
    garbage = GarbageDriver(disk.store, NOTHING, NodeId(0))

    await asyncio.to_thread(int)  # the thread is there before descriptors are short
    with no_free_descriptors():
        assert await garbage.collect() == 0


async def test_deleted_files_are_removed_another_time(disk: Disk) -> None:
    log = disk.open()
    fill(log, 3)
    disk.store.drop_range(log)
    partition = log.directory.parent
    retention = RetentionDriver(NOTHING, disk.store, NOTHING, disk.clock)

    async with asyncio.timeout(30):
        sweeping = asyncio.ensure_future(retention.sweep(1))
        with no_free_descriptors():
            await asyncio.sleep(0.1)
            assert not sweeping.done()
        while any(partition.iterdir()):  # noqa: ASYNC110 - nobody tells when files are gone
            await asyncio.sleep(0.01)
        sweeping.cancel()
