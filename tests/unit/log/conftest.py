"""A disk for every test, in memory where there is one: syncs are many and cost nothing there."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kit.log import Disk

MEMORY = Path("/dev/shm")


@pytest.fixture
def disk() -> Iterator[Disk]:
    parent = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="mainstem-log-", dir=parent) as directory:
        disk = Disk(Path(directory) / "data")
        yield disk
        disk.kill()
