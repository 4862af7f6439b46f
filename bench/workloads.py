"""The loads, and what each is measured by.

A workload runs on one side and returns all its figures by name, also when only one of them is
wanted: what is consumed must have been produced before.
"""

import statistics
import subprocess
import time
from collections.abc import Callable

from bench.figures import Figure, Figures, Volume
from bench.loads import (
    BATCHING,
    LOAD_TIMEOUT_S,
    MEGABYTE,
    ROOT,
    Run,
    joined,
    per_message,
    raw,
    raw_command,
    rdload,
    slices,
)
from bench.measure import costs, cpu_s, rss_bytes
from bench.page_cache import FreshPages, make_present
from bench.paths import encrypted, guarded, idempotent, transactions
from bench.sides import Side, new_topic

# A disk has its moods: of thirteen single turns two were a fifth below the others' median.
GAIN_TURNS = 7
# So has a scheduler: whether it wakes the reader on the sender's core or on the other one makes a
# factor of two in what the sender pays.
FETCH_TURNS = 3


def batched(side: Side, volume: Volume) -> Figures:
    """100 B messages through librdkafka, in and out."""
    topic = new_topic(side)
    count = volume.batched
    make_present(count * 110)
    result, cost = rdload(side, "produce", topic, count, 100, *BATCHING, f"p.acks={side.acks}")
    produced = per_message(result, cost, scale=1e9)
    result, cost = rdload(side, "consume", topic, count, 100)
    consumed = per_message(result, cost, scale=1e9)
    side.delete(topic)
    return {"produce_100b": produced, "consume_100b": consumed}


def large(side: Side, volume: Volume) -> Figures:
    """Requests of one megabyte through a bare socket, in and out."""
    topic = new_topic(side)
    pages: list[FreshPages] = []
    runs: list[Run] = []
    for count in slices(volume.large):
        pages.append(make_present(count * MEGABYTE))
        runs.append(raw(side, "produce", topic, count, MEGABYTE, 5, side.acks))
    figures = {"produce_1mb": per_message(*joined(runs), scale=1e3)}
    fetched = []
    for _ in range(FETCH_TURNS):
        result, cost = raw(side, "fetch", topic, volume.large, 1 << 20, 1, 0)
        fetched.append(per_message(result, cost, scale=1e3))
    figures["fetch_1mb"] = sorted(fetched, key=lambda figure: figure.value)[FETCH_TURNS // 2]
    side.delete(topic)
    found = statistics.median(page.as_found_ms for page in pages)
    present = statistics.median(page.present_ms for page in pages)
    return figures | {"fresh_pages": Figure(present, {"as_found_ms": found})}


def single(side: Side, volume: Volume) -> Figures:
    """Requests of one 100 B record through a bare socket."""
    topic = new_topic(side)
    result, cost = raw(side, "produce", topic, volume.single, 100, 64, side.acks)
    figures = {"one_message_d64": per_message(result, cost, scale=1e6)}
    result, cost = raw(side, "produce", topic, volume.lone, 100, 1, side.acks)
    figures["one_message_d1"] = per_message(result, cost, scale=1e6)
    side.delete(topic)
    return figures


def latency(side: Side, volume: Volume) -> Figures:
    """From produce to the consumer, a thousand records a second, nothing held back."""
    topic = new_topic(side)
    settings = ("p.linger.ms=0", f"p.acks={side.acks}")
    result, cost = rdload(side, "latency", topic, volume.latency, 100, *settings)
    beside = {name: result[name] for name in ("p90_us", "p99_us", "p999_us")}
    beside["cpu_us"] = cost.cpu_s * 1e6 / result["messages"]
    side.delete(topic)
    return {"latency": Figure(result["p50_us"], beside)}


def fsync_gain(side: Side, volume: Volume) -> Figures:
    """How much group commit gains: both rates in turns, since a disk has its moods."""
    topic = new_topic(side)
    alone, together = [], []
    for _ in range(GAIN_TURNS):
        result, _ = raw(side, "produce", topic, max(volume.synced // 20, 200), 100, 1, -1)
        alone.append(result["messages"] / result["seconds"])
        result, _ = raw(side, "produce", topic, volume.synced, 100, 64, -1)
        together.append(result["messages"] / result["seconds"])
    side.delete(topic)
    rate, rate_alone = statistics.median(together), statistics.median(alone)
    return {"fsync_gain": Figure(rate / rate_alone, {"rate": rate, "rate_alone": rate_alone})}


def through(side: Side, volume: Volume) -> Figures:
    """A writer and a reader move many megabytes while the server's memory is watched."""
    topic = new_topic(side, settings={"retention.bytes": str(1 << 30)})
    common = [side.address, topic, str(volume.through)]
    writer = raw_command("produce", *common, str(MEGABYTE), "5", str(side.acks))
    reader = raw_command("fetch", *common, str(1 << 20), "1", "0")
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
    (idempotent, ("idempotent",), ("written", "kafka")),
    (guarded, ("guarded_produce", "guarded_consume"), ("written", "kafka")),
    (encrypted, ("tls_produce", "tls_consume"), ("written", "kafka")),
    (transactions, ("transaction",), ("written", "synced", "kafka")),
    (through, ("rss_through",), ("written", "kafka")),
]
