"""The native protocol: what a confirmed publish and an acknowledged delivery cost, beside NATS.

One connection, one durable queue (NATS: a stream on disk and a durable consumer); one message in
each frame with a thousand unanswered, deliveries acknowledged with a window of 500. An answer of
NATS means that the system has it; the disk has it within two minutes (its ``sync_interval``).
"""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from bench.peers.nats.peer import Nats, is_installed
from bench.progress import Samples
from bench.queue_rounds import measure_queues

from mainstem import connect_blocking
from mainstem.testing.local_node import LocalNode

WINDOW = 500


@dataclass(frozen=True)
class NativeSide:
    """One server and the loader that speaks to it."""

    title: str
    server: LocalNode | Nats

    @property
    def pid(self) -> int:
        """The process that is measured."""
        return self.server.pid

    def command(self, mode: str, queue: str, count: int, size_bytes: int) -> list[str]:
        """The loader's module and words."""
        server = self.server
        loader, address = (
            ("bench.loaders.nats", server.address)
            if isinstance(server, Nats)
            else ("bench.loaders.native", server.native)
        )
        amount = size_bytes if mode == "publish" else WINDOW
        return [loader, mode, address, queue, str(count), str(amount)]

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
    with _sides(peer=peer) as sides:
        measure_queues("native", samples, wanted, sides, rounds, quick=quick)


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
