"""What a cluster costs: copies, many streams, and a node per core, each beside one plain node.

Processor time is that of all servers that are named, by the kernel's clock of each process. Sides
are measured in turns, and memory is made present before each load (``page_cache``), since the
machine's mood changes by the minute.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.loads import BATCHING, ROOT, build_rdload, raw_command
from bench.measure import cpu_s
from bench.page_cache import make_present
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from mainstem.testing.local_cluster import LocalCluster
from mainstem.testing.local_node import LocalNode

COPIED = 4_500_000
STREAMS = 2_000
# 60 KB of messages of 100 B in each request.
RECORDS = 560
REQUESTS = 4_000
# Flush policy, requests in flight, and the target. With several in flight to one stream a burst of
# them is one write, which is a gain of bursts and not a cost of streams.
WAYS: tuple[tuple[str, int, float | None], ...] = (
    ("written", 1, 1.2),
    ("written", 4, None),
    ("fsync", 4, None),
)
DEPTH = 4
SMALL = 250_000
SMALL_DEPTH = 64
LARGE = 2_500
SETTLE_S = 0.5


@dataclass
class Row:
    """One line of the table."""

    title: str
    value: float
    unit: str
    target: float | None
    at_least: bool = False
    beside: str = ""
    samples: dict[str, list[float]] = field(default_factory=dict)

    @property
    def is_met(self) -> bool:
        """Whether the target, if there is one, is reached."""
        if self.target is None:
            return True
        return self.value >= self.target if self.at_least else self.value <= self.target


def create(
    address: str, topic: str, layout: int | list[list[int]], replicas: int = 1, **config: str
) -> AdminClient:
    """A topic of so many partitions, or of these copies; and who made it."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 3})
    words = {name.replace("_", "."): value for name, value in config.items()}
    made = (
        NewTopic(topic, layout, replicas, config=words)
        if isinstance(layout, int)
        else NewTopic(topic, len(layout), replica_assignment=layout, config=words)
    )
    admin.create_topics([made])[topic].result(120)
    return admin


class _Clocks:
    """Processor time of some servers since a moment."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._before = {pid: cpu_s(pid) for pid in pids}

    def read_s(self) -> list[float]:
        time.sleep(SETTLE_S)  # what a load left for others to do belongs to it
        return [cpu_s(pid) - before for pid, before in self._before.items()]


# Copies.


def copies(rounds: int) -> list[Row]:
    """Three copies beside one, on the same batches, synced before they are acknowledged."""
    build_rdload()
    one: list[float] = []
    three: list[float] = []
    for number in range(rounds):
        with LocalNode() as node:
            one.append(_copied(node.kafka, [node.pid], number, copies=1))
        with LocalCluster() as cluster:
            cluster.wait_for_three_voters()
            pids = [member.pid for member in cluster.nodes.values()]
            three.append(_copied(cluster.bootstrap, pids, number, copies=3))
    ratio = statistics.median(three) / statistics.median(one)
    beside = f"{statistics.median(three):,.0f} and {statistics.median(one):,.0f} ns/message"
    return [
        Row(
            "produce in 60 KB batches: 3 nodes with 3 copies / one node (fsync)",
            ratio,
            "times CPU/message",
            3.5,
            beside=beside,
            samples={"one_ns": one, "three_ns": three},
        )
    ]


def _copied(address: str, pids: Sequence[int], number: int, *, copies: int) -> float:
    create(address, f"c{number}", 1, copies)
    _produce(address, f"c{number}", COPIED // 10)
    make_present(COPIED * 110 * copies)
    clocks = _Clocks(pids)
    _produce(address, f"c{number}", COPIED)
    return sum(clocks.read_s()) * 1e9 / COPIED


def _produce(address: str, topic: str, count: int) -> None:
    words = (*BATCHING, "p.acks=-1")
    command = [str(build_rdload()), "produce", address, topic, str(count), "100", *words]
    subprocess.run(command, check=True, capture_output=True)


# Streams.


def streams(rounds: int) -> list[Row]:
    """The same requests to one stream and to two thousand in turn, on one connection."""
    found: dict[str, list[float]] = {}
    with LocalNode() as node:
        for policy in ("written", "fsync"):
            create(node.kafka, f"one-{policy}", 1, flush_policy=policy)
            create(node.kafka, f"many-{policy}", STREAMS, flush_policy=policy)
        for number in range(-1, rounds):  # the first round makes the files
            for policy, depth, _ in WAYS:
                for name, spread in (("one", 1), ("many", STREAMS)):
                    topic = f"{name}-{policy}"
                    cost_ns, p99_us = _spread(node, topic, depth, spread)
                    if number >= 0:
                        found.setdefault(f"{topic}-{depth}-ns", []).append(cost_ns)
                        found.setdefault(f"{topic}-{depth}-p99-us", []).append(p99_us)
    middle = {name: statistics.median(values) for name, values in found.items()}
    rows = []
    for policy, depth, target in WAYS:
        one, many = f"one-{policy}-{depth}", f"many-{policy}-{depth}"
        title = (
            f"60 KB batches to {STREAMS:,} streams in turn / to one, {depth} in flight "
            f"({'page cache' if policy == 'written' else policy})"
        )
        beside = (
            f"{middle[f'{many}-ns']:,.0f} and {middle[f'{one}-ns']:,.0f} ns/message, "
            f"p99 {middle[f'{many}-p99-us']:,.0f} and {middle[f'{one}-p99-us']:,.0f} µs"
        )
        ratio = middle[f"{many}-ns"] / middle[f"{one}-ns"]
        rows.append(Row(title, ratio, "times CPU/message", target, beside=beside))
    rows[0].samples = found
    return rows


def _spread(node: LocalNode, topic: str, depth: int, partitions: int) -> tuple[float, float]:
    """Nanoseconds of the server per message, and the 99th percentile of the answers."""
    words = [node.kafka, topic, *map(str, (REQUESTS, RECORDS, depth, partitions))]
    command = [sys.executable, "-m", "bench.loaders.streams", *words]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as loader:
        assert loader.stdin is not None
        assert loader.stdout is not None
        if loader.stdout.readline() != "ready\n":
            raise SystemExit("the loader has failed")
        make_present(REQUESTS * RECORDS * 110)
        clocks = _Clocks([node.pid])
        result = json.loads(loader.communicate("go\n")[0])
    return sum(clocks.read_s()) * 1e9 / result["messages"], result["p99_us"]


# Shards.


def shards(rounds: int) -> list[Row]:
    """Two nodes of ``mainstemd --shards 2`` beside one plain node, each with its own client."""
    found: dict[str, list[float]] = {}
    with LocalNode() as lone, _sharded(2) as two:
        sides = {"lone": {1: (lone.kafka, lone.pid)}, "two": two}
        for side, nodes in sides.items():
            for number, (address, _) in nodes.items():
                create(address, f"s{number}", [[number]], flush_policy="written")
            _load_each(side, nodes, found, SMALL, warm=True)
        for _ in range(rounds):
            for side, nodes in sides.items():
                _load_each(side, nodes, found, SMALL)
                _load_each(side, nodes, found, LARGE, records=RECORDS)
    middle = {name: statistics.median(values) for name, values in found.items()}
    gain = middle["two_rate"] / middle["lone_rate"]
    return [
        Row(
            "60 KB batches: a shard of two / a lone node (page cache)",
            middle["two_batched_ns"] / middle["lone_batched_ns"],
            "times CPU/message",
            1.1,
            beside=f"{middle['two_batched_ns']:,.0f} and {middle['lone_batched_ns']:,.0f} ns",
        ),
        Row(
            "one-message requests: a shard of two / a lone node (page cache)",
            middle["two_us"] / middle["lone_us"],
            "times CPU/message",
            1.1,
            beside=f"{middle['two_us']:.2f} and {middle['lone_us']:.2f} µs",
        ),
        Row(
            "one-message requests per processor second of the busiest: two shards / one node",
            gain,
            "times",
            1.8,
            at_least=True,
            beside=f"{middle['two_rate']:,.0f} and {middle['lone_rate']:,.0f}/s",
            samples=found,
        ),
    ]


Nodes = Mapping[int, tuple[str, int]]


def _load_each(
    side: str,
    nodes: Nodes,
    found: dict[str, list[float]],
    count: int,
    *,
    records: int = 1,
    warm: bool = False,
) -> None:
    """Load all nodes at once, each with a client of its own."""
    if records > 1:
        make_present(count * records * 110 * len(nodes))
    depth = SMALL_DEPTH if records == 1 else DEPTH
    clocks = _Clocks([pid for _, pid in nodes.values()])
    clients = [
        subprocess.Popen(
            raw_command(
                "produce", address, f"s{number}", str(count), "100", str(depth), "1",
                f"records={records}",
            ),
            cwd=ROOT, stdout=subprocess.DEVNULL,
        )
        for number, (address, _) in nodes.items()
    ]  # fmt: skip
    statuses = [client.wait() for client in clients]
    if any(statuses):
        raise SystemExit("a loader has failed")
    used_s = clocks.read_s()
    if warm:
        return
    if records > 1:
        per_message_ns = statistics.mean(used_s) * 1e9 / (count * records)
        found.setdefault(f"{side}_batched_ns", []).append(per_message_ns)
        return
    found.setdefault(f"{side}_us", []).append(statistics.mean(used_s) * 1e6 / count)
    found.setdefault(f"{side}_rate", []).append(count * len(nodes) / max(used_s))


@contextmanager
def _sharded(count: int) -> Iterator[Nodes]:
    """The nodes of ``mainstemd --shards``: number to address and process."""
    ports = [
        word
        for name in ("kafka", "http", "amqp", "mqtt", "native")
        for word in ("--set", f"{name}.port=0")
    ]
    with tempfile.TemporaryDirectory(prefix="bench-shards-") as folder:
        log = Path(folder) / "log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "mainstem.node", "--shards", str(count),
                 "--data-dir", folder, "--peer-port", "0", *ports],
                stdout=subprocess.PIPE, stderr=out, stdin=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line.startswith(b"READY "):
                raise SystemExit(f"the shards did not start: {log.read_text()[-800:]}")
            ready = json.loads(line.removeprefix(b"READY "))
            yield {
                number: (str(one["kafka"]), int(one["pid"]))
                for number, one in enumerate(ready["shards"], 1)
            }
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
