"""AMQP with many queues: bound to one busy exchange, or made for one answer each."""

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pika
from bench.figures import GOALS, Figure
from bench.measure import rss_bytes, settle
from bench.progress import Samples
from bench.queue_rounds import QueueSide, load

BOUND = {"amqp_bound_1": 1, "amqp_bound_1000": 1_000}
REPLIES = "amqp_replies"
REPLY_QUEUES = 10_000
EXCHANGE = "bench-busy"
SETTLE_S = 2.0


class AmqpServer(Protocol):
    """A running server process that speaks AMQP."""

    amqp: str
    data_dir: Path

    @property
    def pid(self) -> int:
        """The process that is measured."""


class ShapedSide(QueueSide, Protocol):
    """One server."""

    @property
    def server(self) -> AmqpServer:
        """The server itself."""


def measure_shapes(samples: Samples, wanted: set[str], side: ShapedSide, *, quick: bool) -> None:
    """Every wanted figure of one side, once."""
    count = 10_000 if quick else 50_000
    for name, queues in BOUND.items():
        if name in wanted and not samples.has(name, side.title, 0):
            with _bound(side.server, queues):
                settle()
                time.sleep(SETTLE_S)  # what the declarations left to do is not a publisher's
                words = [side.server.amqp, f"{EXCHANGE}/key.0.x", str(count), "100", "1"]
                found = load(side, ["bench.loaders.amqp", "publish", *words], count)
            _note(samples, name, side, found)
    if REPLIES in wanted and not samples.has(REPLIES, side.title, 0):
        _note(samples, REPLIES, side, _replies(side, 1_000 if quick else REPLY_QUEUES))


def _replies(side: ShapedSide, count: int) -> Figure:
    """What a queue costs, and what all of them leave behind."""
    words = ["bench.loaders.amqp", "replies", side.server.amqp, "any"]
    load(side, [*words, "100", "0", "0"], 100)
    time.sleep(SETTLE_S)
    before = rss_bytes(side.pid), _files(side.server)
    found = load(side, [*words, str(count), "0", "0"], count)
    time.sleep(SETTLE_S)
    left_mb = (rss_bytes(side.pid) - before[0]) / 1e6
    beside = {"left_mb": max(0.0, left_mb), "left_files": _files(side.server) - before[1]}
    return Figure(found.value, {**found.beside, **beside})


def _files(server: AmqpServer) -> int:
    return sum(1 for path in server.data_dir.rglob("*") if path.is_file())


def _note(samples: Samples, name: str, side: ShapedSide, figure: Figure) -> None:
    value = f"{figure.value:,.1f} {GOALS[name].unit}"
    sys.stderr.write(f"once     {name:18} {side.title:36} {value} {figure.beside}\n")
    samples.add(name, side.title, figure)


@contextlib.contextmanager
def _bound(server: AmqpServer, count: int) -> Iterator[None]:
    """An exchange with so many queues, each with a pattern of its own."""
    host, _, port = server.amqp.rpartition(":")
    connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port), heartbeat=0))
    channel = connection.channel()
    channel.exchange_declare(EXCHANGE, "topic", durable=True)
    names = [f"bench-bound-{number}" for number in range(count)]
    for number, name in enumerate(names):
        channel.queue_declare(name, durable=True)
        channel.queue_bind(name, EXCHANGE, f"key.{number}.*")
    yield
    for name in names:
        channel.queue_delete(name)
    channel.exchange_delete(EXCHANGE)
    connection.close()
