"""Async tests and fixtures run on one loop, which is closed when the test ends."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.kit.loop import virtual_time

from mainstem.testing.simulation.virtual_loop import VirtualLoop

ROOT = Path(__file__).resolve().parents[3]
FAILING = """
import asyncio
import pytest

@pytest.fixture
async def opened():
    yield asyncio.get_running_loop()
    assert asyncio.get_running_loop().is_running()
    print("closed what was opened")

async def test_that_fails(opened):
    await asyncio.sleep(0)
    raise ValueError("seen")

async def test_that_passes(opened):
    assert opened is asyncio.get_running_loop()
"""


class Events:
    """What happened, in order, and what must have happened when the loop is closed."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.expected: list[str] = []


@pytest.fixture
def events() -> Iterator[Events]:
    events = Events()
    yield events
    assert events.seen == events.expected


@pytest.fixture
async def loop(events: Events) -> AsyncIterator[asyncio.AbstractEventLoop]:
    events.seen.append("opened")
    yield asyncio.get_running_loop()
    events.seen.append("closed")


@pytest.fixture
def tasks() -> set[asyncio.Task[None]]:
    return set()


@pytest.fixture
async def number() -> int:
    await asyncio.sleep(0)
    return 7


async def test_a_fixture_runs_on_the_loop_of_its_test(
    loop: asyncio.AbstractEventLoop, number: int, events: Events
) -> None:
    events.expected = ["opened", "tested", "closed"]
    assert loop is asyncio.get_running_loop()
    assert number == 7
    events.seen.append("tested")


async def test_tasks_that_are_left_are_cancelled(
    loop: asyncio.AbstractEventLoop, events: Events, tasks: set[asyncio.Task[None]]
) -> None:
    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            events.seen.append("cancelled")

    events.expected = ["opened", "tested", "closed", "cancelled"]
    tasks.add(asyncio.create_task(forever()))
    await asyncio.sleep(0)
    events.seen.append("tested")


@virtual_time
async def test_the_marker_chooses_the_loop() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    await asyncio.sleep(3600)
    assert loop.time() == 3600


def test_a_failure_is_reported_and_fixtures_are_closed(tmp_path: Path) -> None:
    (tmp_path / "test_them.py").write_text(FAILING)
    options = ["-p", "tests.kit.async_tests", "-p", "no:cacheprovider", "-rA"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "ValueError: seen" in done.stdout
    assert done.stdout.count("closed what was opened") == 2
