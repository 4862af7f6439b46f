"""AMQP: what a confirmed publish and an acknowledged delivery cost, beside RabbitMQ.

One connection, one channel, one durable queue; publishes are confirmed with a thousand in flight,
deliveries acknowledged one by one with a prefetch of 500. A confirm of a quorum queue means that
the disk has it, one of a classic queue that it is durable, a transient message is in memory only.
"""

import contextlib
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import pika
from bench.figures import GOALS, Figure
from bench.loads import LOAD_TIMEOUT_S, ROOT
from bench.measure import costs, settle
from bench.peers.rabbitmq.peer import RabbitMq, is_installed
from bench.progress import Samples

from mainstem.testing.local_node import LocalNode

PREFETCH = 500
SIZES = {"100b": 100, "1kb": 1_000}


class AmqpServer(Protocol):
    """A running server process that speaks AMQP."""

    amqp: str

    @property
    def pid(self) -> int:
        """The process that is measured."""


@dataclass(frozen=True)
class AmqpSide:
    """One server with one kind of queue."""

    title: str
    server: AmqpServer
    arguments: dict[str, str] = field(default_factory=dict)
    is_durable: bool = True

    def declare(self, queue: str) -> None:
        """Let the queue be there."""
        with self._channel() as channel:
            channel.queue_declare(queue, durable=self.is_durable, arguments=self.arguments)

    def delete(self, queue: str) -> None:
        """Let it go."""
        with self._channel() as channel:
            channel.queue_delete(queue)

    @contextlib.contextmanager
    def _channel(self) -> Iterator[pika.channel.Channel]:
        host, _, port = self.server.amqp.rpartition(":")
        connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))
        yield connection.channel()
        connection.close()


def measure_amqp(
    samples: Samples, wanted: set[str], rounds: int, *, quick: bool, peer: bool
) -> None:
    """Every wanted figure of AMQP, in interleaved rounds."""
    count = 20_000 if quick else 100_000
    with _sides(peer=peer) as sides:
        for number in range(0 if quick else -1, rounds):
            first = number % len(sides)
            for side in sides[first:] + sides[:first]:
                for size in SIZES:
                    _measure(samples, wanted, side, size, number, count)


def _measure(
    samples: Samples, wanted: set[str], side: AmqpSide, size: str, number: int, count: int
) -> None:
    names = (f"amqp_publish_{size}", f"amqp_deliver_{size}")
    done = all(samples.has(name, side.title, max(number, 0)) for name in names)
    if done or not wanted & set(names):
        return
    settle()
    queue = f"bench-{uuid.uuid4().hex[:8]}"
    side.declare(queue)
    persistent = "1" if side.is_durable else "0"
    runs = ("publish", str(SIZES[size]), persistent), ("deliver", str(PREFETCH), "0")
    label = "warm-up" if number < 0 else f"round {number + 1}"
    for name, (mode, amount, flag) in zip(names, runs, strict=True):
        figure = _load(side, mode, queue, count, amount, flag)
        sys.stderr.write(
            f"{label}  {name:18} {side.title:36} {figure.value:,.1f} {GOALS[name].unit}\n"
        )
        if number >= 0:
            samples.add(name, side.title, figure)
    side.delete(queue)


def _load(side: AmqpSide, mode: str, queue: str, count: int, *words: str) -> Figure:
    command = [sys.executable, "-m", "bench.loaders.amqp", mode, side.server.amqp, queue]
    command += [str(count), *words]
    with costs(side.server.pid) as cost:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=LOAD_TIMEOUT_S, check=False
        )
    if done.returncode:
        raise RuntimeError(f"the load on {side.title} failed: {done.stderr[-800:]}")
    result = json.loads(done.stdout)
    beside = {"rate": count / result["seconds"], "rss_mb": cost.rss_max_bytes / 1e6}
    return Figure(cost.cpu_s * 1e6 / count, beside)


@contextlib.contextmanager
def _sides(*, peer: bool) -> Iterator[list[AmqpSide]]:
    with contextlib.ExitStack() as stack:
        flags = ("--set", "amqp.enabled=true")
        synced = stack.enter_context(LocalNode(arguments=flags))
        written = stack.enter_context(LocalNode(arguments=(*flags, "--flush-policy", "written")))
        sides = [
            AmqpSide("mainstem (fsync)", synced),
            AmqpSide("mainstem (page cache)", written),
        ]
        if peer and not is_installed():
            sys.stderr.write("RabbitMQ is not installed: Debian's rabbitmq-server has it\n")
        elif peer:
            rabbit = stack.enter_context(RabbitMq())
            sides += [
                AmqpSide("rabbitmq quorum (fsync)", rabbit, {"x-queue-type": "quorum"}),
                AmqpSide("rabbitmq classic (durable)", rabbit),
                AmqpSide("rabbitmq transient (memory)", rabbit, is_durable=False),
            ]
        yield sides
