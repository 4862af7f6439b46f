"""Processes that run scenarios, and what becomes of them when their parent is killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

COMMAND = str(Path(sys.executable).with_name("mainstem"))
SIMULATOR = [sys.executable, "-m", "mainstem.testing.simulation.cluster.scenarios"]
# One scenario takes longer than the test waits: a worker whose pool is gone ends after its own.
LONG = [*SIMULATOR, "--seconds", "7200"]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found in /proc")
@pytest.mark.parametrize("command", [[COMMAND, "sim"], LONG])
def test_no_process_goes_on_when_the_first_is_killed(command: list[str]) -> None:
    with subprocess.Popen(
        [*command, "--hours", "10", "--workers", "2"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as parent:
        try:
            wait_for(lambda: sum(is_worker(each) for each in descendants(parent.pid)) == 2)
            started = descendants(parent.pid)
        finally:
            parent.kill()

    try:
        wait_for(lambda: not any(map(is_running, started)))
    finally:
        for process in filter(is_running, started):
            os.kill(process, signal.SIGKILL)


def wait_for(condition: Callable[[], bool], timeout_s: float = 15.0) -> None:
    """Fail if a condition does not hold in time."""
    until_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.05)


def descendants(process: int) -> list[int]:
    """The processes that a process started, and those that they started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        if int(fields[1]) == process:
            child = int(path.parent.name)
            found += [child, *descendants(child)]
    return found


def is_worker(process: int) -> bool:
    """Whether it is a worker of a pool."""
    try:
        return b"spawn_main" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False


def is_running(process: int) -> bool:
    """Whether a process has not ended; a zombie has ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
