"""The native protocol: what a confirmed publish and an acknowledged delivery cost, beside NATS.

One connection, one durable queue (NATS: a stream on disk and a durable consumer); one message in
each frame with a thousand unanswered, deliveries acknowledged with a window of 500. An answer of
NATS means that the system has it; the disk has it within two minutes (its ``sync_interval``).
"""

import contextlib
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from bench.figures import GOALS, Figure
from bench.loads import LOAD_TIMEOUT_S, ROOT
from bench.measure import costs, settle
from bench.peers.nats.peer import Nats, is_installed
from bench.progress import Samples

from mainstem import connect_blocking
from mainstem.testing.local_node import LocalNode

WINDOW = 500
SIZES = {"100b": 100, "1kb": 1_000}


@dataclass(frozen=True)
class NativeSide:
    """One server and the loader that speaks to it."""

    title: str
    server: LocalNode | Nats

    @property
    def loader(self) -> str:
        """The module that makes the load."""
        return "bench.loaders.nats" if isinstance(self.server, Nats) else "bench.loaders.native"

    @property
    def address(self) -> str:
        """Where it listens."""
        return self.server.address if isinstance(self.server, Nats) else self.server.native

    def declare(self, queue: str) -> None:
        """Let the queue be there; the loader of NATS sees to that itself."""
        if isinstance(self.server, LocalNode):
            with connect_blocking(self.server.native) as queues:
                queues.declare(queue, preset="plain")

    def delete(self, queue: str) -> None:
        """Let it go."""
        if isinstance(self.server, LocalNode):
            with connect_blocking(self.server.native) as queues:
                queues.queue(queue).delete()


def measure_native(
    samples: Samples, wanted: set[str], rounds: int, *, quick: bool, peer: bool
) -> None:
    """Every wanted figure of the native protocol, in interleaved rounds."""
    count = 20_000 if quick else 100_000
    with _sides(peer=peer) as sides:
        for number in range(0 if quick else -1, rounds):
            first = number % len(sides)
            for side in sides[first:] + sides[:first]:
                for size in SIZES:
                    _measure(samples, wanted, side, size, number, count)


def _measure(
    samples: Samples, wanted: set[str], side: NativeSide, size: str, number: int, count: int
) -> None:
    names = (f"native_publish_{size}", f"native_deliver_{size}")
    done = all(samples.has(name, side.title, max(number, 0)) for name in names)
    if done or not wanted & set(names):
        return
    settle()
    queue = f"bench-{uuid.uuid4().hex[:8]}"
    side.declare(queue)
    label = "warm-up" if number < 0 else f"round {number + 1}"
    for name, mode, amount in zip(
        names, ("publish", "deliver"), (SIZES[size], WINDOW), strict=True
    ):
        figure = _load(side, mode, queue, count, amount)
        sys.stderr.write(
            f"{label}  {name:18} {side.title:36} {figure.value:,.1f} {GOALS[name].unit}\n"
        )
        if number >= 0:
            samples.add(name, side.title, figure)
    side.delete(queue)


def _load(side: NativeSide, mode: str, queue: str, count: int, amount: int) -> Figure:
    command = [sys.executable, "-m", side.loader, mode, side.address, queue, str(count)]
    with costs(side.server.pid) as cost:
        done = subprocess.run(
            [*command, str(amount)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=LOAD_TIMEOUT_S,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"the load on {side.title} failed: {done.stderr[-800:]}")
    result = json.loads(done.stdout)
    beside = {"rate": count / result["seconds"], "rss_mb": cost.rss_max_bytes / 1e6}
    return Figure(cost.cpu_s * 1e6 / count, beside)


@contextlib.contextmanager
def _sides(*, peer: bool) -> Iterator[list[NativeSide]]:
    with contextlib.ExitStack() as stack:
        flags = ("--set", "native.enabled=true")
        synced = stack.enter_context(LocalNode(arguments=flags))
        written = stack.enter_context(LocalNode(arguments=(*flags, "--flush-policy", "written")))
        sides = [
            NativeSide("mainstem (fsync)", synced),
            NativeSide("mainstem (page cache)", written),
        ]
        if peer and not is_installed():
            sys.stderr.write("NATS is not installed: Debian's nats-server has it\n")
        elif peer:
            nats = stack.enter_context(Nats())
            sides.append(NativeSide("nats jetstream (page cache)", nats))
        yield sides
