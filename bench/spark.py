"""Pipelines on Spark: what rows and changes cost, beside Spark's Kafka connector and Debezium.

Both connectors read and write topics of the same node, in turn, each in a Spark session of a
process of its own: Spark's connector in the version that the client suite has, with the settings
that help it. Both write as they do by default: ours exactly once, Spark's at least once; the topics
are synced. Debezium's engine follows the same tables of the same PostgreSQL server.
"""

import asyncio
import contextlib
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.figures import GOALS, Figure, Figures
from bench.measure import settle
from bench.peers.debezium import peer as debezium
from bench.peers.maven import Unavailable
from bench.progress import Samples
from bench.spark_changes import Tables
from bench.spark_memory import pipeline_memory
from bench.spark_sides import SparkSide
from tests.clients.spark import kafka_jars
from tests.clients.spark import python as peer_python

from mainstem.client.admin import Admin
from mainstem.testing.local_node import LocalNode

PARTITIONS = 2
FLOOR_BATCHES = 80
FLOOR_WARM = 30
HERE = Path(__file__).parent
ON_TOPICS = {"spark_read", "spark_write", "spark_steps", "spark_floor", "spark_memory"}
OURS = "mainstem (exactly once, synced)"
SPARKS = "kafka connector (at least once, synced)"
DEBEZIUM = "debezium (at least once)"


@dataclass(frozen=True)
class SparkVolume:
    """How much of each load; a JVM compiles what it has run often, so warm-ups are of full size."""

    rows: int
    rows_written: int
    documents: int
    table_rows: int
    changes: int
    warm_ups: int


FULL = SparkVolume(
    rows=6_000_000,
    rows_written=2_000_000,
    documents=1_000_000,
    table_rows=600_000,
    changes=300_000,
    warm_ups=3,
)
QUICK = SparkVolume(
    rows=400_000,
    rows_written=400_000,
    documents=200_000,
    table_rows=100_000,
    changes=50_000,
    warm_ups=1,
)
Load = Callable[[SparkSide], Figures]


def measure_spark(
    samples: Samples, wanted: set[str], rounds: int, *, quick: bool, peer: bool
) -> None:
    """Every wanted figure of Spark, in interleaved rounds."""
    volume = QUICK if quick else FULL
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-spark-")))
        node = stack.enter_context(LocalNode())
        command = [sys.executable, str(HERE / "spark_job.py"), node.kafka, str(folder)]
        command = [*command, str(PARTITIONS)]
        ours = stack.enter_context(SparkSide(OURS, command, folder / "ours.log", watched=True))
        if wanted & ON_TOPICS:
            with _connector(node, folder, peer=peer) as others:
                topics = Topics(node, volume, ours)
                _rounds(samples, wanted, rounds, topics.loads(), [ours, *others], volume.warm_ups)
                if "spark_memory" in wanted and not samples.has("spark_memory", OURS, 0):
                    settle()
                    samples.add("spark_memory", OURS, topics.pipeline_memory())
        if wanted & {"spark_snapshot", "spark_changes"}:
            with _debezium(folder, peer=peer) as others, Tables(volume.table_rows) as tables:
                loads: dict[str, Load] = {
                    "spark_snapshot": lambda side: tables.followed(side, volume.changes)
                }
                _rounds(samples, wanted, rounds, loads, [ours, *others], volume.warm_ups)
        if "spark_every_load_memory" in wanted:
            held = {"pss_mb": ours.memory.pss_max_mb}
            samples.add("spark_every_load_memory", OURS, Figure(ours.memory.rss_max_mb, held))


def _rounds(
    samples: Samples,
    wanted: set[str],
    rounds: int,
    loads: dict[str, Load],
    sides: list[SparkSide],
    warm_ups: int,
) -> None:
    due = {name: load for name, load in loads.items() if name in wanted or name == "spark_snapshot"}
    for number in range(-warm_ups, rounds):
        # Nobody is always the first.
        first = number % len(sides)
        for side in sides[first:] + sides[:first]:
            for name, load in due.items():
                if samples.has(name, side.title, rounds - 1 if number < 0 else number):
                    continue
                settle()
                label = "warm-up" if number < 0 else f"round {number + 1}"
                for found, figure in load(side).items():
                    value = f"{figure.value:,.0f} {GOALS[found].unit}"
                    sys.stderr.write(f"{label}  {found:16} {side.title:40} {value}\n")
                    if number >= 0:
                        samples.add(found, side.title, figure)


class Topics:
    """The loads on topics of one node."""

    def __init__(self, node: LocalNode, volume: SparkVolume, ours: SparkSide) -> None:
        self._node = node
        self._volume = volume
        self._serial = 0
        self._filled, self._documents, self._trickle = (self._fresh_topic() for _ in range(3))
        ours.ask("write", self._filled, volume.rows)
        ours.ask("write_documents", self._documents, volume.documents)
        ours.ask("write", self._trickle, 100 * FLOOR_BATCHES)

    def loads(self) -> dict[str, Load]:
        """By the figure that they give."""
        return {
            "spark_read": self._read,
            "spark_write": self._write,
            "spark_steps": self._steps,
            "spark_floor": self._floor,
        }

    def pipeline_memory(self) -> Figure:
        """What the steps weigh as a pipeline of their own."""
        return pipeline_memory(self._node.kafka, self._documents, self._volume.documents)

    def _read(self, side: SparkSide) -> Figures:
        return {"spark_read": side.cost(self._volume.rows, "read", self._filled)}

    def _write(self, side: SparkSide) -> Figures:
        topic, rows = self._fresh_topic(), self._volume.rows_written
        return {"spark_write": side.cost(rows, "write", topic, rows)}

    def _steps(self, side: SparkSide) -> Figures:
        if side.title != OURS:
            return {}
        return {"spark_steps": side.cost(self._volume.documents, "steps", self._documents)}

    def _floor(self, side: SparkSide) -> Figures:
        taken = side.ask("floor", self._trickle, self._fresh_topic())["ms"][FLOOR_WARM:]
        return {"spark_floor": Figure(statistics.median(taken), {"least_ms": min(taken)})}

    def _fresh_topic(self) -> str:
        self._serial += 1
        name = f"bench-{self._serial}"

        async def create() -> None:
            async with Admin(self._node.kafka) as admin:
                await admin.create_topic(name, partitions=PARTITIONS)

        asyncio.run(create())
        return name


@contextlib.contextmanager
def _connector(node: LocalNode, folder: Path, *, peer: bool) -> Iterator[list[SparkSide]]:
    """Spark with its own Kafka connector, where it can be had."""
    with contextlib.ExitStack() as stack:
        found = []
        if peer:
            try:
                jars = ",".join(map(str, kafka_jars()))
                command = [str(peer_python()), str(HERE / "peers" / "spark_kafka" / "job.py")]
            except Unavailable as error:
                sys.stderr.write(f"without Spark's own connector: {error}\n")
            else:
                command = [*command, node.kafka, jars, str(PARTITIONS)]
                found.append(
                    stack.enter_context(SparkSide(SPARKS, command, folder / "connector.log"))
                )
        yield found


@contextlib.contextmanager
def _debezium(folder: Path, *, peer: bool) -> Iterator[list[SparkSide]]:
    """Debezium's engine, where it can be had."""
    with contextlib.ExitStack() as stack:
        found = []
        if peer:
            try:
                command = debezium.command(folder)
            except Unavailable as error:
                sys.stderr.write(f"without Debezium: {error}\n")
            else:
                found.append(
                    stack.enter_context(SparkSide(DEBEZIUM, command, folder / "debezium.log"))
                )
        yield found
