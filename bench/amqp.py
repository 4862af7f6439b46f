"""AMQP: what a confirmed publish and an acknowledged delivery cost, beside RabbitMQ.

One connection, one channel, one durable queue; publishes are confirmed with a thousand in flight,
deliveries acknowledged one by one with a prefetch of 500. A confirm of a quorum queue means that
the disk has it, one of a classic queue that it is durable, a transient message is in memory only.
"""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pika
from bench.amqp_shapes import measure_shapes
from bench.peers.rabbitmq.peer import RabbitMq, is_installed
from bench.progress import Samples
from bench.queue_rounds import measure_queues

from mainstem.testing.local_node import LocalNode

PREFETCH = 500


class AmqpServer(Protocol):
    """A running server process that speaks AMQP."""

    amqp: str
    data_dir: Path

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

    @property
    def pid(self) -> int:
        """The process that is measured."""
        return self.server.pid

    def command(self, mode: str, queue: str, count: int, size_bytes: int) -> list[str]:
        """The loader's module and words."""
        persistent = "1" if self.is_durable else "0"
        words = [str(size_bytes), persistent] if mode == "publish" else [str(PREFETCH), "0"]
        return ["bench.loaders.amqp", mode, self.server.amqp, queue, str(count), *words]

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
    with _sides(peer=peer) as sides:
        measure_queues("amqp", samples, wanted, sides, rounds, quick=quick)
        for side in sides:
            if "quorum" not in side.title and "transient" not in side.title:
                measure_shapes(samples, wanted, side, quick=quick)


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
