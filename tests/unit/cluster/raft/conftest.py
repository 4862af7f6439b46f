"""A folder in memory, where syncs cost nothing; real power losses are tested elsewhere."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def disk() -> Iterator[Path]:
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="raft-", dir=memory if memory.is_dir() else None))
    yield folder
    shutil.rmtree(folder)
