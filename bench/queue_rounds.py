"""Rounds of publishing to and delivering from a queue, alike for every protocol and its peers."""

import json
import subprocess
import sys
import uuid
from collections.abc import Sequence
from typing import Protocol

from bench.figures import GOALS, Figure
from bench.loads import LOAD_TIMEOUT_S, ROOT
from bench.measure import costs, settle
from bench.progress import Samples

SIZES = {"100b": 100, "1kb": 1_000}


class QueueSide(Protocol):
    """One server with one kind of queue, and the loader that speaks to it."""

    @property
    def title(self) -> str:
        """What it is called in the table."""

    @property
    def pid(self) -> int:
        """The process that is measured."""

    def declare(self, queue: str) -> None:
        """Let the queue be there."""

    def delete(self, queue: str) -> None:
        """Let it go."""

    def command(self, mode: str, queue: str, count: int, size_bytes: int) -> list[str]:
        """The loader's module and words, for ``publish`` or ``deliver``."""


def measure_queues(
    protocol: str,
    samples: Samples,
    wanted: set[str],
    sides: Sequence[QueueSide],
    rounds: int,
    *,
    quick: bool,
) -> None:
    """Every wanted figure of a protocol, in interleaved rounds."""
    count = 20_000 if quick else 100_000
    for number in range(0 if quick else -1, rounds):
        first = number % len(sides)
        for side in [*sides[first:], *sides[:first]]:
            for size, size_bytes in SIZES.items():
                names = (f"{protocol}_publish_{size}", f"{protocol}_deliver_{size}")
                done = all(samples.has(name, side.title, max(number, 0)) for name in names)
                if not done and wanted & set(names):
                    _measure(samples, side, names, size_bytes, number, count)


def _measure(
    samples: Samples,
    side: QueueSide,
    names: tuple[str, str],
    size_bytes: int,
    number: int,
    count: int,
) -> None:
    settle()
    queue = f"bench-{uuid.uuid4().hex[:8]}"
    side.declare(queue)
    label = "warm-up" if number < 0 else f"round {number + 1}"
    for name, mode in zip(names, ("publish", "deliver"), strict=True):
        figure = load(side, side.command(mode, queue, count, size_bytes), count)
        sys.stderr.write(
            f"{label}  {name:18} {side.title:36} {figure.value:,.1f} {GOALS[name].unit}\n"
        )
        if number >= 0:
            samples.add(name, side.title, figure)
    side.delete(queue)


def load(side: QueueSide, words: list[str], count: int) -> Figure:
    """Run a loader against a side: what a message costs its server."""
    command = [sys.executable, "-m", *words]
    with costs(side.pid) as cost:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=LOAD_TIMEOUT_S, check=False
        )
    if done.returncode:
        raise RuntimeError(f"the load on {side.title} failed: {done.stderr[-800:]}")
    result = json.loads(done.stdout)
    beside = {"rate": count / result["seconds"], "rss_mb": cost.rss_max_bytes / 1e6}
    return Figure(cost.cpu_s * 1e6 / count, beside)
