"""Topics in Spark: what reading and writing costs per core, beside Spark's own Kafka connector.

    python bench/spark.py            two million rows of 100 bytes, three rounds
    python bench/spark.py --quick    fewer rows, one round
    python bench/spark.py --no-peer  without Spark's connector, which comes through Maven

Both connectors run in one Spark session on the same topic of the same node, in turn. What counts is
the processor time of Spark's Java process and of its Python workers together; the node is not part
of it. Writing is measured as it is by default: ours exactly once, Spark's at least once.
"""

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.peers.maven import Unavailable, jars

from mainstem.client.admin import Admin
from mainstem.pipelines.spark.session import SparkSettings, open_session
from mainstem.testing.local_node import LocalNode

PARTITIONS = 2
VALUE_BYTES = 100
MEBIBYTE = 1 << 20
FLOOR_BATCHES = 60
# What pyspark brings itself must not be there twice.
OWN = ("hadoop", "scala-library", "slf4j", "jsr305", "lz4", "snappy", "spark-tags", "scala-par")
OURS, SPARKS = "mainstem", "kafka"
TARGETS = {
    "read": "≥ 1,200,000 rows/s/core",
    "write": "≥ 500,000 rows/s/core",
    "floor": "≤ 60 ms",
    "memory": "≤ 1,536 MiB",
}


@dataclass(frozen=True)
class Cost:
    """What a load took."""

    rows: int
    wall_s: float
    cpu_s: float

    @property
    def rows_per_core_s(self) -> float:
        """Rows for one second of one core."""
        return self.rows / self.cpu_s


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--no-peer", action="store_true")
    options = parser.parse_args()
    rows = 400_000 if options.quick else 2_000_000
    rounds = 1 if options.quick else 3
    peer = [] if options.no_peer else _peer_jars()
    formats = [OURS, SPARKS] if peer else [OURS]
    with LocalNode() as node, _spark(peer) as spark, tempfile.TemporaryDirectory() as folder:
        bench = Bench(spark, node, Path(folder), rows)
        results = bench.run(formats, rounds)
    print(json.dumps(results, indent=2))
    _print_table(results)
    return 0


class Bench:
    """The loads."""

    def __init__(self, spark, node: LocalNode, folder: Path, rows: int) -> None:  # type: ignore[no-untyped-def]
        self.spark = spark
        self.node = node
        self.folder = folder
        self.rows = rows
        self.serial = 0

    def run(self, formats: list[str], rounds: int) -> dict[str, dict[str, float]]:
        """All figures by load and format."""
        costs: dict[tuple[str, str], list[Cost]] = {}
        self._create("filled")
        self._write(OURS, "filled")
        for name in formats:  # nobody is measured cold
            self._read(name, "filled")
            self._write(name, self._fresh_topic())
        for _ in range(rounds):
            for name in formats:
                read = self._measured(self._read, name, "filled")
                costs.setdefault(("read", name), []).append(read)
                write = self._measured(self._write, name, self._fresh_topic())
                costs.setdefault(("write", name), []).append(write)
        results: dict[str, dict[str, float]] = {
            f"{load} {name}": {
                "rows/s/core": round(statistics.median(c.rows_per_core_s for c in found)),
                "rows/s": round(statistics.median(c.rows / c.wall_s for c in found)),
            }
            for (load, name), found in costs.items()
        }
        for name in formats:
            median, least = self._floor(name)
            results[f"floor {name}"] = {"ms": median, "least ms": least}
        results["memory"] = {"MiB": _memory_mib()}
        return results

    def _measured(self, work: Callable[[str, str], None], name: str, topic: str) -> Cost:
        before, begun = _cpu_s(), time.monotonic()
        work(name, topic)
        return Cost(self.rows, time.monotonic() - begun, _cpu_s() - before)

    def _read(self, name: str, topic: str) -> None:
        frame = (
            self.spark.read.format(name)
            .option("kafka.bootstrap.servers", self.node.kafka)
            .option("subscribe", topic)
            .load()
        )
        frame.write.format("noop").mode("overwrite").save()

    def _write(self, name: str, topic: str) -> None:
        frame = self.spark.range(self.rows, numPartitions=PARTITIONS).selectExpr(
            "cast(id AS string) AS key", f"lpad(cast(id AS string), {VALUE_BYTES}, 'x') AS value"
        )
        writer = frame.write.format(name).option("kafka.bootstrap.servers", self.node.kafka)
        writer.option("topic", topic).mode("append").save()

    def _floor(self, name: str) -> tuple[float, float]:
        """How long a micro-batch of a hundred rows takes from topic to topic."""
        source, target = self._fresh_topic(), self._fresh_topic()
        frame = self.spark.range(100 * FLOOR_BATCHES).selectExpr("cast(id AS string) AS value")
        writer = frame.write.format(OURS).option("kafka.bootstrap.servers", self.node.kafka)
        writer.option("topic", source).mode("append").save()
        query = (
            self.spark.readStream.format(name)
            .option("kafka.bootstrap.servers", self.node.kafka)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "100")
            .load()
            .select("value")
            .writeStream.format(name)
            .option("kafka.bootstrap.servers", self.node.kafka)
            .option("topic", target)
            .option("checkpointLocation", str(self.folder / f"floor-{name}-{self.serial}"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        taken = [p["durationMs"]["triggerExecution"] for p in query.recentProgress][10:]
        return statistics.median(taken), min(taken)

    def _fresh_topic(self) -> str:
        self.serial += 1
        name = f"bench-{self.serial}"
        self._create(name)
        return name

    def _create(self, name: str) -> None:
        async def create() -> None:
            async with Admin(self.node.kafka) as admin:
                await admin.create_topic(name, partitions=PARTITIONS)

        asyncio.run(create())


@contextlib.contextmanager
def _spark(peer: list[Path]) -> Iterator[object]:
    extra = {"spark.jars": ",".join(map(str, peer))} if peer else {}
    extra["spark.sql.streaming.numRecentProgressUpdates"] = "1000"
    session = open_session(SparkSettings(master=f"local[{PARTITIONS}]", extra=extra))
    try:
        yield session
    finally:
        session.stop()


def _peer_jars() -> list[Path]:
    try:
        found = jars(Path(__file__).parent / "peers" / "spark_kafka" / "pom.xml")
        return sorted(path for path in found.iterdir() if not path.name.startswith(OWN))
    except Unavailable as error:
        print(f"without Spark's own connector: {error}", file=sys.stderr)
        return []


def _family() -> list[psutil.Process]:
    """Spark's Java process and its Python workers."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "mainstem.node" not in child.cmdline():
                found.append(child)
    return found


def _cpu_s() -> float:
    total = 0.0
    for process in _family():
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def _memory_mib() -> float:
    total = psutil.Process().memory_info().rss
    for process in _family():
        with contextlib.suppress(psutil.Error):
            info = process.memory_full_info()
            # Workers are forks: what they share is counted once.
            total += info.pss if process.name() != "java" else info.rss
    return round(total / MEBIBYTE)


def _print_table(results: dict[str, dict[str, float]]) -> None:
    print("\n| what | figure | beside | target |\n|---|---|---|---|")
    for name, found in results.items():
        first, *rest = [f"{value:,.0f} {unit}" for unit, value in found.items()]
        target = TARGETS[name.split()[0]] if SPARKS not in name.split() else ""
        print(f"| {name} | {first} | {', '.join(rest)} | {target} |")


if __name__ == "__main__":
    sys.exit(main())
