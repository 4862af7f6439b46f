"""The loads, and what each is measured by.

A workload runs on one side and returns all its figures by name, also when only one of them is
wanted: what is consumed must have been produced before.
"""

import json
import shutil
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from bench.measure import Cost, costs, cpu_s, rss_bytes
from bench.page_cache import FreshPages, make_present
from bench.sides import Side

ROOT = Path(__file__).parents[1]
CACHE = ROOT / ".cache" / "bench"
LOAD_TIMEOUT_S = 900
# 60 KB batches of 100 B messages, as the targets say.
BATCHING = ("p.batch.size=61440", "p.linger.ms=20")
MEGABYTE = 1_000_000
GAIN_TURNS = 3
# A load that writes much comes in slices, each with its memory made present right before it.
SLICE_BYTES = 300_000_000


@dataclass(frozen=True)
class Volume:
    """How much of each load; ``QUICK`` is for use while optimising."""

    batched: int
    large: int
    single: int
    lone: int
    latency: int
    synced: int
    through: int


FULL = Volume(
    batched=3_000_000,
    large=1_500,
    single=200_000,
    lone=10_000,
    latency=4_000,
    synced=20_000,
    through=10_000,
)
QUICK = Volume(
    batched=500_000,
    large=300,
    single=50_000,
    lone=3_000,
    latency=1_500,
    synced=5_000,
    through=1_000,
)
# Enough for a Java server to have compiled its hot paths and touched its heap once.
WARM = replace(QUICK, batched=2_000_000, large=1_200, single=100_000)


@dataclass(frozen=True)
class Figure:
    """One measurement: the value that the target is about, and figures beside it."""

    value: float
    beside: dict[str, float]


Figures = dict[str, Figure]


@dataclass(frozen=True)
class Goal:
    """What a figure is called, its unit and its target (None: reported only)."""

    title: str
    unit: str
    target: float | None
    at_least: bool = False
    # Whether less than Apache Kafka is an achievement of the server.
    compared: bool = True


GOALS: dict[str, Goal] = {
    "produce_100b": Goal("produce 100 B in 60 KB batches", "ns CPU/message", 180),
    "consume_100b": Goal("consume 100 B in 60 KB batches", "ns CPU/message", 140),
    "produce_1mb": Goal("produce, 1 MB requests", "ms CPU/MB", 0.8),
    "fetch_1mb": Goal("fetch, 1 MB answers", "ms CPU/MB", 0.25),
    "fresh_pages": Goal("plain pwrite of fresh page cache", "ms CPU/MB", None, compared=False),
    "one_message_d64": Goal("one-message requests, 64 in flight", "µs CPU/request", 5),
    "one_message_d1": Goal("one-message requests, 1 in flight", "µs CPU/request", None),
    "latency": Goal("end to end, acks=1, p50", "µs", 250),
    "fsync_gain": Goal("rate at 64 in flight / rate at 1", "times", 30, at_least=True),
    "ready": Goal("ready after process start", "s", 1),
    "rss_start": Goal("resident memory after start", "MB", 120),
    "idle": Goal("idle, share of one core", "%", 1),
    "rss_through": Goal("resident memory while data passes through", "MB", 300),
}


def batched(side: Side, volume: Volume) -> Figures:
    """100 B messages through librdkafka, in and out."""
    topic = _topic(side)
    count = volume.batched
    make_present(count * 110)
    result, cost = _rdload(side, "produce", topic, count, 100, *BATCHING, f"p.acks={side.acks}")
    produced = _per_message(result, cost, scale=1e9)
    result, cost = _rdload(side, "consume", topic, count, 100)
    consumed = _per_message(result, cost, scale=1e9)
    side.delete(topic)
    return {"produce_100b": produced, "consume_100b": consumed}


def large(side: Side, volume: Volume) -> Figures:
    """Requests of one megabyte through a bare socket, in and out."""
    topic = _topic(side)
    pages: list[FreshPages] = []
    slices: list[tuple[dict[str, float], Cost]] = []
    for count in _slices(volume.large):
        pages.append(make_present(count * MEGABYTE))
        slices.append(_raw(side, "produce", topic, count, MEGABYTE, 5, side.acks))
    figures = {"produce_1mb": _per_message(*_joined(slices), scale=1e3)}
    result, cost = _raw(side, "fetch", topic, volume.large, 1 << 20, 1, 0)
    figures["fetch_1mb"] = _per_message(result, cost, scale=1e3)
    side.delete(topic)
    found = statistics.median(page.as_found_ms for page in pages)
    present = statistics.median(page.present_ms for page in pages)
    return figures | {"fresh_pages": Figure(present, {"as_found_ms": found})}


def single(side: Side, volume: Volume) -> Figures:
    """Requests of one 100 B record through a bare socket."""
    topic = _topic(side)
    result, cost = _raw(side, "produce", topic, volume.single, 100, 64, side.acks)
    figures = {"one_message_d64": _per_message(result, cost, scale=1e6)}
    result, cost = _raw(side, "produce", topic, volume.lone, 100, 1, side.acks)
    figures["one_message_d1"] = _per_message(result, cost, scale=1e6)
    side.delete(topic)
    return figures


def latency(side: Side, volume: Volume) -> Figures:
    """From produce to the consumer, a thousand records a second, nothing held back."""
    topic = _topic(side)
    settings = ("p.linger.ms=0", f"p.acks={side.acks}")
    result, cost = _rdload(side, "latency", topic, volume.latency, 100, *settings)
    beside = {name: result[name] for name in ("p90_us", "p99_us", "p999_us")}
    beside["cpu_us"] = cost.cpu_s * 1e6 / result["messages"]
    side.delete(topic)
    return {"latency": Figure(result["p50_us"], beside)}


def fsync_gain(side: Side, volume: Volume) -> Figures:
    """How much group commit gains: both rates in turns, since a disk has its moods."""
    topic = _topic(side)
    alone, together = [], []
    for _ in range(GAIN_TURNS):
        result, _ = _raw(side, "produce", topic, max(volume.synced // 20, 200), 100, 1, -1)
        alone.append(result["messages"] / result["seconds"])
        result, _ = _raw(side, "produce", topic, volume.synced, 100, 64, -1)
        together.append(result["messages"] / result["seconds"])
    side.delete(topic)
    rate, rate_alone = statistics.median(together), statistics.median(alone)
    return {"fsync_gain": Figure(rate / rate_alone, {"rate": rate, "rate_alone": rate_alone})}


def through(side: Side, volume: Volume) -> Figures:
    """A writer and a reader move many megabytes while the server's memory is watched."""
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    side.create(topic, **{"retention.bytes": str(1 << 30)})
    common = [side.server.kafka, topic, str(volume.through)]
    writer = _raw_command("produce", *common, str(MEGABYTE), "5", str(side.acks))
    reader = _raw_command("fetch", *common, str(1 << 20), "1", "0")
    began = time.perf_counter()
    with costs(side.server.pid) as cost:
        running = [
            subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
            for command in (writer, reader)
        ]
        statuses = [process.wait(LOAD_TIMEOUT_S) for process in running]
    if any(statuses):
        raise RuntimeError(f"the load on {side.title} failed: {statuses}")
    seconds = time.perf_counter() - began
    side.delete(topic)
    beside = {"passed_gb": volume.through / 1e3, "rate": volume.through / seconds}
    return {"rss_through": Figure(cost.rss_max_bytes / 1e6, beside)}


def at_rest(side: Side, idle_s: float) -> Figures:
    """A server that has just been started, and then nothing happens."""
    figures = {
        "ready": Figure(side.server.ready_s, {}),
        "rss_start": Figure(rss_bytes(side.server.pid) / 1e6, {}),
    }
    before = cpu_s(side.server.pid)
    time.sleep(idle_s)
    used = cpu_s(side.server.pid) - before
    figures["idle"] = Figure(100 * used / idle_s, {"seconds": idle_s})
    return figures


# Which figures a workload gives, and on which sides it is run.
Workload = Callable[[Side, Volume], Figures]
WORKLOADS: list[tuple[Workload, tuple[str, ...], tuple[str, ...]]] = [
    (batched, ("produce_100b", "consume_100b"), ("written", "synced", "kafka")),
    (large, ("produce_1mb", "fetch_1mb", "fresh_pages"), ("written", "synced", "kafka")),
    (single, ("one_message_d64", "one_message_d1"), ("written", "synced", "kafka")),
    (latency, ("latency",), ("written", "synced", "kafka")),
    (fsync_gain, ("fsync_gain",), ("synced",)),
    (through, ("rss_through",), ("written", "kafka")),
]


def build_rdload() -> Path:
    """The librdkafka loader, compiled when its source is newer."""
    source = Path(__file__).parent / "loaders" / "rdload.c"
    binary = CACHE / "rdload"
    if binary.exists() and binary.stat().st_mtime > source.stat().st_mtime:
        return binary
    if shutil.which("cc") is None:
        raise SystemExit("the loader needs a C compiler and Debian's librdkafka-dev")
    CACHE.mkdir(parents=True, exist_ok=True)
    command = ["cc", "-O2", "-Wall", "-o", str(binary), str(source), "-lrdkafka", "-lpthread"]
    if subprocess.run(command, check=False).returncode:
        raise SystemExit("the loader did not compile; Debian's librdkafka-dev has what it needs")
    return binary


def _topic(side: Side) -> str:
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    side.create(topic)
    return topic


def _rdload(side: Side, mode: str, topic: str, *words: object) -> tuple[dict[str, float], Cost]:
    command = [str(build_rdload()), mode, side.server.kafka, topic, *map(str, words)]
    return _measured(side, command)


def _raw(side: Side, mode: str, topic: str, *words: object) -> tuple[dict[str, float], Cost]:
    return _measured(side, _raw_command(mode, side.server.kafka, topic, *map(str, words)))


def _raw_command(*words: str) -> list[str]:
    return [sys.executable, "-m", "bench.loaders.raw", *words]


def _measured(side: Side, command: list[str]) -> tuple[dict[str, float], Cost]:
    with costs(side.server.pid) as cost:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=LOAD_TIMEOUT_S, check=False
        )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} on {side.title}: {done.stderr[-800:]}")
    result: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return result, cost


def _slices(megabytes: int) -> list[int]:
    whole, rest = divmod(megabytes, SLICE_BYTES // MEGABYTE)
    return [SLICE_BYTES // MEGABYTE] * whole + ([rest] if rest else [])


def _joined(slices: list[tuple[dict[str, float], Cost]]) -> tuple[dict[str, float], Cost]:
    """Several runs of one load as one."""
    results = [result for result, _ in slices]
    cost = Cost(
        cpu_s=sum(cost.cpu_s for _, cost in slices),
        wall_s=sum(cost.wall_s for _, cost in slices),
        rss_max_bytes=max(cost.rss_max_bytes for _, cost in slices),
    )
    return {name: sum(result[name] for result in results) for name in results[0]}, cost


def _per_message(result: dict[str, float], cost: Cost, *, scale: float) -> Figure:
    count = result["messages"]
    beside = {"rate": count / result["seconds"], "rss_mb": cost.rss_max_bytes / 1e6}
    if "client_cpu_s" in result:
        beside["client_cpu"] = result["client_cpu_s"] * scale / count
    return Figure(cost.cpu_s * scale / count, beside)
