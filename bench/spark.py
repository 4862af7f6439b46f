"""Topics in Spark: what reading and writing costs per core, beside Spark's own Kafka connector.

    python bench/spark.py            two million rows of 100 bytes, three rounds
    python bench/spark.py --quick    fewer rows, one round
    python bench/spark.py --no-peer  without Spark's connector, which comes through Maven

Both read and write topics of the same node, in turn, each in a Spark session of its own: Spark's
connector in the version that the client suite has, with the settings that help it. What counts is
the processor time of Spark's Java process and of its Python workers together; the node is not part
of it. Both write as they do by default: ours exactly once, Spark's at least once.
"""

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.peers.maven import Unavailable
from tests.clients.spark import kafka_jars
from tests.clients.spark import python as peer_python

from mainstem.client.admin import Admin
from mainstem.pipelines.spark.session import SparkSettings, open_session
from mainstem.testing.local_node import LocalNode

PARTITIONS = 2
VALUE_BYTES = 100
MEBIBYTE = 1 << 20
FLOOR_BATCHES = 60
FLOOR_WARM = 20
OURS, SPARKS = "mainstem", "kafka"
PEER_JOB = Path(__file__).parent / "peers" / "spark_kafka" / "job.py"
TARGETS = {
    "read": "≥ 1,200,000 rows/s/core",
    "write": "≥ 500,000 rows/s/core",
    "floor": "≤ 60 ms",
    "memory": "≤ 1,536 MiB",
}


class Side(Protocol):
    """A connector in its session."""

    def read(self, topic: str) -> None:
        """Reads a topic to nowhere."""
        ...

    def write(self, topic: str, rows: int) -> None:
        """Writes so many rows."""
        ...

    def floor(self, source: str, target: str) -> list[float]:
        """How long micro-batches of a hundred rows take, in milliseconds."""
        ...

    def processes(self) -> list[psutil.Process]:
        """What counts: Spark's Java process and its Python workers."""
        ...


@dataclass(frozen=True)
class Cost:
    """What a load took."""

    rows: int
    wall_s: float
    cpu_s: float


class Ours:
    """This repository's connector, in this process."""

    def __init__(self, servers: str, folder: Path) -> None:
        self._node = {"kafka.bootstrap.servers": servers}
        self._folder = folder
        extra = {"spark.sql.streaming.numRecentProgressUpdates": "1000"}
        self._others = set(psutil.Process().children(recursive=True))
        self._spark = open_session(SparkSettings(master=f"local[{PARTITIONS}]", extra=extra))

    def read(self, topic: str) -> None:
        """Reads a topic to nowhere."""
        frame = self._spark.read.format(OURS).options(**self._node, subscribe=topic).load()
        frame.write.format("noop").mode("overwrite").save()

    def write(self, topic: str, rows: int) -> None:
        """Writes so many rows."""
        frame = self._spark.range(rows, numPartitions=PARTITIONS).selectExpr(
            "cast(id AS string) AS key", f"lpad(cast(id AS string), {VALUE_BYTES}, 'x') AS value"
        )
        frame.write.format(OURS).options(**self._node, topic=topic).mode("append").save()

    def floor(self, source: str, target: str) -> list[float]:
        """How long micro-batches of a hundred rows take."""
        query = (
            self._spark.readStream.format(OURS)
            .options(**self._node, subscribe=source, startingOffsets="earliest")
            .option("maxOffsetsPerTrigger", "100")
            .load()
            .select("value")
            .writeStream.format(OURS)
            .options(**self._node, topic=target)
            .option("checkpointLocation", str(self._folder / target))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [p["durationMs"]["triggerExecution"] for p in query.recentProgress]

    def processes(self) -> list[psutil.Process]:
        """Everything that this process started for Spark."""
        everything = psutil.Process().children(recursive=True)
        peers = [each for each in everything if str(PEER_JOB) in _command(each)]
        theirs = {each for peer in peers for each in (peer, *peer.children(recursive=True))}
        return [each for each in everything if each not in theirs | self._others]


class Peer:
    """Spark's connector, in a process of its own."""

    def __init__(self, servers: str, jars: list[Path]) -> None:
        command = [str(peer_python()), str(PEER_JOB), servers, ",".join(map(str, jars))]
        self._process = subprocess.Popen(
            [*command, str(PARTITIONS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._answer()

    def read(self, topic: str) -> None:
        """Reads a topic to nowhere."""
        self._ask("read", topic, 0)

    def write(self, topic: str, rows: int) -> None:
        """Writes so many rows."""
        self._ask("write", topic, rows)

    def floor(self, source: str, target: str) -> list[float]:
        """How long micro-batches of a hundred rows take."""
        found: list[float] = self._ask("floor", f"{source},{target}", 0)["ms"]
        return found

    def processes(self) -> list[psutil.Process]:
        """Its Java process."""
        return psutil.Process(self._process.pid).children(recursive=True)

    def close(self) -> None:
        """Ends it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _ask(self, load: str, topic: str, number: int) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([load, topic, number]) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("Spark with its own connector has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer


class Bench:
    """The loads, on one node."""

    def __init__(self, node: LocalNode, rows: int) -> None:
        self._node = node
        self._rows = rows
        self._serial = 0

    def run(self, sides: dict[str, Side], rounds: int) -> dict[str, dict[str, float]]:
        """All figures by load and side."""
        filled = self._fresh_topic()
        sides[OURS].write(filled, self._rows)
        for side in sides.values():  # nobody is measured cold
            side.read(filled)
            side.write(self._fresh_topic(), self._rows)
        costs: dict[str, list[Cost]] = {}
        for _ in range(rounds):
            for name, side in sides.items():
                with self._measured(side, costs.setdefault(f"read {name}", [])):
                    side.read(filled)
                topic = self._fresh_topic()
                with self._measured(side, costs.setdefault(f"write {name}", [])):
                    side.write(topic, self._rows)
        results: dict[str, dict[str, float]] = {
            name: {
                "rows/s/core": round(statistics.median(c.rows / c.cpu_s for c in found)),
                "rows/s": round(statistics.median(c.rows / c.wall_s for c in found)),
            }
            for name, found in costs.items()
        }
        source = self._fresh_topic()
        sides[OURS].write(source, 100 * FLOOR_BATCHES)
        for name, side in sides.items():
            taken = side.floor(source, self._fresh_topic())[FLOOR_WARM:]
            results[f"floor {name}"] = {"ms": statistics.median(taken), "ms at least": min(taken)}
        results["memory mainstem"] = {"MiB": _memory_mib(sides[OURS].processes())}
        return results

    @contextlib.contextmanager
    def _measured(self, side: Side, costs: list[Cost]) -> Iterator[None]:
        before, begun = _cpu_s(side), time.monotonic()
        yield
        costs.append(Cost(self._rows, time.monotonic() - begun, _cpu_s(side) - before))

    def _fresh_topic(self) -> str:
        self._serial += 1
        name = f"bench-{self._serial}"

        async def create() -> None:
            async with Admin(self._node.kafka) as admin:
                await admin.create_topic(name, partitions=PARTITIONS)

        asyncio.run(create())
        return name


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--no-peer", action="store_true")
    options = parser.parse_args()
    rows, rounds = (400_000, 1) if options.quick else (2_000_000, 3)
    with (
        LocalNode() as node,
        tempfile.TemporaryDirectory() as folder,
        contextlib.ExitStack() as end,
    ):
        sides: dict[str, Side] = {OURS: Ours(node.kafka, Path(folder))}
        if not options.no_peer:
            try:
                peer = Peer(node.kafka, kafka_jars())
            except Unavailable as error:
                print(f"without Spark's own connector: {error}", file=sys.stderr)
            else:
                end.callback(peer.close)
                sides[SPARKS] = peer
        results = Bench(node, rows).run(sides, rounds)
    _print_table(results)
    return 0


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _cpu_s(side: Side) -> float:
    total = 0.0
    for process in side.processes():
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def _memory_mib(processes: list[psutil.Process]) -> float:
    """With this driver; workers are forks, and what they share is counted once."""
    total = psutil.Process().memory_info().rss
    for process in processes:
        with contextlib.suppress(psutil.Error):
            total += process.memory_full_info().pss
    return round(total / MEBIBYTE)


def _print_table(results: dict[str, dict[str, float]]) -> None:
    print("\n| what | figure | beside | target |\n|---|---|---|---|")
    for name, found in results.items():
        first, *rest = [f"{value:,.0f} {unit}" for unit, value in found.items()]
        load, side = name.split()
        target = TARGETS[load] if side == OURS else ""
        print(f"| {load}, format({side}) | {first} | {', '.join(rest)} | {target} |")


if __name__ == "__main__":
    sys.exit(main())
