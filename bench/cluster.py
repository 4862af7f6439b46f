"""Three nodes of one machine: what copies cost, and how soon writing goes on after a death.

    python bench/cluster.py                     all rows
    python bench/cluster.py --only fail_over    some of them: copies, fail_over, streams, shards
    python bench/cluster.py --rounds 20         how often a writer is killed

Prints one line per row with its goal, and one JSON line at the end. Processor time is that of all
servers together. Fail-over is the longest time between two acknowledgements of a partition whose
writer was killed with ``kill -9``, as a producer sees it; the client's own pauses count.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.loads import BATCHING, build_rdload
from bench.measure import cpu_s, load_average
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from mainstem.testing.local_cluster import LocalCluster
from mainstem.testing.local_node import LocalNode

Row = dict[str, Any]
COUNT = 2_000_000
SMALL = 200_000
STREAMS = 2_000
PRODUCER = {
    "enable.idempotence": True,
    "linger.ms": 1,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 50,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 50,
    "topic.metadata.refresh.fast.interval.ms": 20,
}


def create(address: str, topic: str, partitions: int, replicas: int) -> AdminClient:
    """A topic, and who made it."""
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, partitions, replicas)])[topic].result(120)
    return admin


def load(address: str, topic: str, count: int, pids: Sequence[int], *words: str) -> float:
    """Processor time of the servers per message, in nanoseconds, in batches of 60 KB."""
    command = [str(build_rdload()), "produce", address, topic, str(count), "100", *words]
    before = sum(map(cpu_s, pids))
    subprocess.run(command, check=True, capture_output=True)
    time.sleep(0.5)
    return (sum(map(cpu_s, pids)) - before) * 1e9 / count


def copies(rounds: int) -> Row:
    """Three copies beside one, on the same batches."""
    alone: list[float] = []
    three: list[float] = []
    words = (*BATCHING, "p.acks=-1")
    for number in range(max(1, rounds // 7)):
        with tempfile.TemporaryDirectory() as folder, LocalNode(Path(folder)) as node:
            create(node.kafka, f"c{number}", 1, 1)
            load(node.kafka, f"c{number}", COUNT // 10, [node.pid], *words)
            alone.append(load(node.kafka, f"c{number}", COUNT, [node.pid], *words))
        with LocalCluster() as cluster:
            create(cluster.bootstrap, f"c{number}", 1, 3)
            pids = [node.pid for node in cluster.nodes.values()]
            load(cluster.bootstrap, f"c{number}", COUNT // 10, pids, *words)
            three.append(load(cluster.bootstrap, f"c{number}", COUNT, pids, *words))
    ratio = statistics.median(three) / statistics.median(alone)
    return {"one_ns": alone, "three_ns": three, "ratio": ratio, "goal": 3.5, "met": ratio <= 3.5}


class Beat:
    """A producer that writes to one partition all the while and knows when it was answered."""

    def __init__(self, address: str, topic: str) -> None:
        self._producer = Producer({**PRODUCER, "bootstrap.servers": address})
        self._topic = topic
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._last_s = time.monotonic()
        self._gap_s = 0.0
        self.failed = 0
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """The longest gap counts from now on."""
        with self._lock:
            self._gap_s = 0.0

    def gap_s(self) -> float:
        """The longest time without an answer."""
        with self._lock:
            return max(self._gap_s, time.monotonic() - self._last_s)

    def end(self) -> None:
        """Write no more."""
        self._over.set()
        self._thread.join()
        self._producer.flush(30)

    def _answered(self, error: object, message: object) -> None:
        del message
        now = time.monotonic()
        with self._lock:
            self.failed += error is not None
            self._gap_s = max(self._gap_s, now - self._last_s)
            self._last_s = now

    def _write(self) -> None:
        while not self._over.is_set():
            self._producer.produce(self._topic, b"x" * 100, on_delivery=self._answered)
            self._producer.poll(0.005)


def fail_over(rounds: int) -> Row:
    """The writer of a partition is killed, with either preset, leading the group or not."""
    row: Row = {}
    for preset, goal_s in (("normal", 3.0), ("fast", 1.0)):
        with LocalCluster(arguments=("--set", f"cluster.preset={preset}")) as cluster:
            admin = create(cluster.bootstrap, "t", 1, 3)
            beat = Beat(cluster.bootstrap, "t")
            gaps: dict[bool, list[float]] = {True: [], False: []}
            for _ in range(rounds):
                time.sleep(6)
                found = admin.list_topics("t", timeout=20)
                writer = found.topics["t"].partitions[0].leader
                is_leader = found.controller_id == writer
                beat.begin()
                cluster.nodes[writer].kill9()
                time.sleep(2 * goal_s)
                gaps[is_leader].append(round(beat.gap_s(), 2))
                cluster.nodes[writer].start()
            beat.end()
        every = gaps[True] + gaps[False]
        row[preset] = {
            "median_s": statistics.median(every),
            "led_s": sorted(gaps[True]),
            "others_s": sorted(gaps[False]),
            "failed": beat.failed,
            "goal_s": goal_s,
            "met": statistics.median(every) <= goal_s,
        }
    return row


def streams(rounds: int) -> Row:
    """The same messages into one stream and into two thousand, in requests of the same size."""
    few: list[float] = []
    many: list[float] = []
    words = ("p.linger.ms=50", "p.batch.size=61440", "p.acks=-1")
    with tempfile.TemporaryDirectory() as folder, LocalNode(Path(folder)) as node:
        create(node.kafka, "one", 1, 1)
        create(node.kafka, "many", STREAMS, 1)
        for _ in range(max(1, rounds // 4)):
            few.append(load(node.kafka, "one", COUNT, [node.pid], *words))
            many.append(load(node.kafka, "many", COUNT, [node.pid], *words))
    ratio = statistics.median(many) / statistics.median(few)
    return {"one_ns": few, "many_ns": many, "ratio": ratio, "goal": 1.2, "met": ratio <= 1.2}


def shards(rounds: int) -> Row:
    """Small requests to two shards beside one node, per second of the servers' processors."""
    one = [_requests(1) for _ in range(max(1, rounds // 7))]
    two = [_requests(2) for _ in range(max(1, rounds // 7))]
    per_shard = statistics.median(two) / statistics.median(one)
    return {"one_us": one, "two_us": two, "ratio": per_shard, "goal": 1.1, "met": per_shard <= 1.1}


def _requests(count: int) -> float:
    """Processor time of all shards per message that travels alone, in microseconds."""
    ports = [w for name in ("kafka", "http", "amqp", "mqtt", "native")
             for w in ("--set", f"{name}.port=0")]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", "mainstem.node", "--shards", str(count), "--preset", "local",
             "--data-dir", folder, *(["--peer-port", "0"] if count > 1 else []), *ports],
            stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline().removeprefix(b"READY "))
            nodes = ready.get("shards", [ready])
            create(nodes[0]["kafka"], "t", count, 1)
            words = ("p.linger.ms=0", "p.batch.num.messages=1", "p.acks=-1")
            address = ",".join(str(node["kafka"]) for node in nodes)
            return load(address, "t", SMALL, [node["pid"] for node in nodes], *words) / 1e3
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()


ROWS: dict[str, Callable[[int], Row]] = {
    "copies": copies,
    "fail_over": fail_over,
    "streams": streams,
    "shards": shards,
}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(ROWS))
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    found: dict[str, Row] = {}
    for name in options.only.split(","):
        found[name] = ROWS[name](options.rounds)
        print(name, json.dumps(found[name]), flush=True)
    print(json.dumps({"load_average": load_average(), "rows": found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
