"""What a server process costs: processor time, memory, and how long it takes to be ready.

Processor time is read from the kernel's clock of the process, which counts all its threads (ended
ones too) in nanoseconds.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SAMPLE_S = 0.05
SETTLE_S = 0.5


@dataclass
class Cost:
    """What happened in a server while a load ran."""

    cpu_s: float = 0.0
    wall_s: float = 0.0
    rss_max_bytes: int = 0


def cpu_s(pid: int) -> float:
    """Processor time of a process and of its present children."""
    return sum(_clock_s(one) for one in family(pid))


def rss_bytes(pid: int) -> int:
    """Resident memory of a process and of its present children."""
    total = 0
    for one in family(pid):
        for line in _read(one, "status").splitlines():
            if line.startswith("VmRSS:"):
                total += int(line.split()[1]) << 10
    return total


def family(pid: int) -> list[int]:
    """The process and every process below it."""
    found = [pid]
    for one in found:
        children = _read(one, f"task/{one}/children").split()
        found += [int(child) for child in children]
    return found


@contextmanager
def costs(pid: int) -> Iterator[Cost]:
    """Measure a server while the block runs; the figures are filled in at its end."""
    cost = Cost()
    stopping = threading.Event()

    def watch() -> None:
        while not stopping.wait(SAMPLE_S):
            cost.rss_max_bytes = max(cost.rss_max_bytes, rss_bytes(pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    cpu_before, began = cpu_s(pid), time.perf_counter()
    try:
        yield cost
    finally:
        cost.wall_s = time.perf_counter() - began
        cost.cpu_s = cpu_s(pid) - cpu_before
        stopping.set()
        watcher.join()
        cost.rss_max_bytes = max(cost.rss_max_bytes, rss_bytes(pid))


def _clock_s(pid: int) -> float:
    try:
        # The clock id that clock_getcpuclockid(3) makes of a process id.
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        return 0.0


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def settle() -> None:
    """Let the disk finish what earlier loads left, so that the next one does not pay for it."""
    os.sync()
    time.sleep(SETTLE_S)


def load_average() -> float:
    """How busy the machine was over the last minute; wall figures suffer from it."""
    return os.getloadavg()[0]
