"""How long writing stands still: after the death of a writer, and while a range is sealed.

What counts is the longest time between two acknowledgements of a partition as a producer of
librdkafka sees it (idempotent, ``acks=all``, short pauses before it tries again); its own pauses
and those of the machine are included.
"""

import json
import statistics
import threading
import time
import urllib.request
from typing import Any

from bench.cluster_costs import Row, create
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from mainstem.testing.local_cluster import LocalCluster

PRODUCER = {
    "enable.idempotence": True,
    "linger.ms": 1,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 50,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 50,
    "topic.metadata.refresh.fast.interval.ms": 20,
    "log_level": 0,
}
LAYOUT = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
GOALS_S = {"normal": 3.0, "fast": 1.0}
SETTLED_S_MAX = 30.0
# After the first answer of a new writer it is watched for so long.
WATCHED_S = 0.5
RANGE_BYTES = 1 << 20


class Beat:
    """A producer that writes to some partitions all the while and knows when it was answered."""

    def __init__(self, address: str, topic: str, partitions: int, size_bytes: int = 100) -> None:
        self._producer = Producer({**PRODUCER, "bootstrap.servers": address})
        self._topic = topic
        self._value = b"x" * size_bytes
        self._over = threading.Event()
        self._lock = threading.Lock()
        now_s = time.monotonic()
        self._last_s = dict.fromkeys(range(partitions), now_s)
        self._gap_s = dict.fromkeys(range(partitions), 0.0)
        self.failed = 0
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """The longest gaps count from now on."""
        with self._lock:
            self._gap_s = dict.fromkeys(self._gap_s, 0.0)

    def gap_s(self, partition: int) -> float:
        """The longest time without an answer."""
        with self._lock:
            return max(self._gap_s[partition], time.monotonic() - self._last_s[partition])

    def until_answered_after(self, partition: int, at_s: float, timeout_s: float) -> None:
        """Wait for an answer that comes after a moment."""
        while self._last_s[partition] <= at_s and time.monotonic() < at_s + timeout_s:
            time.sleep(0.01)

    def end(self) -> None:
        """Write no more."""
        self._over.set()
        self._thread.join()
        self._producer.flush(30)

    def _answered(self, error: object, message: Any) -> None:
        now_s = time.monotonic()
        partition = message.partition()
        with self._lock:
            self.failed += error is not None
            self._gap_s[partition] = max(self._gap_s[partition], now_s - self._last_s[partition])
            self._last_s[partition] = now_s

    def _write(self) -> None:
        while not self._over.is_set():
            for partition in self._last_s:
                try:
                    self._producer.produce(
                        self._topic, self._value, b"k", partition, self._answered
                    )
                except BufferError:
                    break  # much waits for the new writer already
            self._producer.poll(0.002)


def fail_over(rounds: int, preset: str) -> list[Row]:
    """Writers are killed, every other time the one that leads the catalogue's group."""
    gaps: dict[bool, list[float]] = {True: [], False: []}
    with LocalCluster(arguments=("--set", f"cluster.preset={preset}")) as cluster:
        cluster.wait_for_three_voters()
        admin = create(cluster.bootstrap, "t", LAYOUT)
        beat = Beat(cluster.bootstrap, "t", len(LAYOUT))
        for number in range(rounds):
            led = number % 2 == 0
            victim, partition = _victim(cluster, admin, leads=led)
            beat.until_answered_after(partition, time.monotonic(), SETTLED_S_MAX)
            beat.begin()
            killed_s = time.monotonic()
            cluster.nodes[victim].kill9()
            # Answers that were on their way still arrive; none of them takes that long.
            beat.until_answered_after(partition, killed_s + 0.1, SETTLED_S_MAX)
            time.sleep(WATCHED_S)
            gaps[led].append(round(beat.gap_s(partition), 3))
            cluster.nodes[victim].start()
        beat.end()
    goal_s = GOALS_S[preset]
    rows = []
    for led, which in ((False, "a writer"), (True, "a writer that leads the catalogue")):
        found = sorted(gaps[led])
        rows.append(
            Row(
                f"writes stand still after kill -9 of {which}, {preset} leases",
                statistics.median(found) if found else 0.0,
                "s",
                goal_s,
                beside=f"{len(found)} kills, {found[0]:.2f} to {found[-1]:.2f} s" if found else "",
                samples={"gaps_s": found, "failed": [beat.failed]},
            )
        )
    return rows


def seal(rounds: int) -> list[Row]:
    """A range of three copies is full again and again; the longest gap between two answers."""
    config = {"cleanup_policy": "compact", "min_compaction_lag_ms": "86400000"}
    gaps_ms: list[float] = []
    with LocalCluster() as cluster:
        cluster.wait_for_three_voters()
        create(cluster.bootstrap, "s", 1, 3, segment_bytes=str(RANGE_BYTES), **config)
        beat = Beat(cluster.bootstrap, "s", 1, size_bytes=1_000)
        ended_s = time.monotonic() + SETTLED_S_MAX * 2
        beat.until_answered_after(0, time.monotonic(), SETTLED_S_MAX)
        known = _last_range(cluster)
        while len(gaps_ms) < rounds and time.monotonic() < ended_s:
            beat.begin()
            while (found := _last_range(cluster)) == known and time.monotonic() < ended_s:
                time.sleep(0.02)
            time.sleep(0.1)  # the answers of what was in flight
            gaps_ms.append(beat.gap_s(0) * 1e3)
            known = found
        beat.end()
    return [
        Row(
            "longest gap between two answers around an active seal, 3 copies (fsync)",
            statistics.median(gaps_ms),
            "ms",
            100,
            beside=f"{len(gaps_ms)} seals, {min(gaps_ms):,.0f} to {max(gaps_ms):,.0f} ms",
            samples={"gaps_ms": gaps_ms, "failed": [beat.failed]},
        )
    ]


def _last_range(cluster: LocalCluster) -> int:
    rows = _get(cluster, "/v1/cluster/ranges?topic=s")
    return max(int(row["index"]) for row in rows)


def _overview(cluster: LocalCluster) -> dict[str, Any]:
    found: dict[str, Any] = _get(cluster, "/v1/cluster")
    return found


def _get(cluster: LocalCluster, path: str) -> Any:
    address = next(node.http for node in cluster.nodes.values() if node.is_running)
    with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
        return json.loads(answer.read())


def _victim(cluster: LocalCluster, admin: AdminClient, *, leads: bool) -> tuple[int, int]:
    """A node that leads the catalogue's group, or not, and a partition that it writes.

    It may be killed once every copy is in sync and three nodes vote.
    """
    give_up = time.monotonic() + SETTLED_S_MAX
    while time.monotonic() < give_up:
        time.sleep(0.1)
        overview = _overview(cluster)
        try:
            partitions = admin.list_topics("t", timeout=10).topics["t"].partitions
        except KafkaException:
            continue  # the node that was asked is the one that was killed
        found = [
            (one.leader, number)
            for number, one in partitions.items()
            if (one.leader == overview["leader"]) == leads
        ]
        is_whole = all(len(one.isrs) == len(LAYOUT) for one in partitions.values())
        if found and is_whole and len(overview["voters"]) == len(LAYOUT):
            return found[0]
    raise SystemExit(f"the cluster did not settle: {overview}")
