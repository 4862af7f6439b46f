"""Speed and memory of a node beside Apache Kafka, on the same loads in the same run.

    python bench/run.py                         everything, several rounds, with Apache Kafka
    python bench/run.py --quick                 small volumes, one round, the node alone
    python bench/run.py --only produce_100b     some figures only
    python bench/run.py --only spark            the pipelines on Spark, beside its connector
    python bench/run.py --only amqp             queues over AMQP, beside RabbitMQ
    python bench/run.py --only mqtt             MQTT, beside Mosquitto
    python bench/run.py --only native           queues over the native protocol, beside NATS
    python bench/run.py --resume                take up a run that was cut short

Rounds are interleaved (every side once, then again), because the machine's mood changes by the
minute; the table shows the median and the least of them. Each row names what the side promises
when it acknowledges a record.
"""

import argparse
import contextlib
import datetime
import json
import signal
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.amqp import measure_amqp
from bench.figures import FULL, GOALS, QUICK, WARM, Volume
from bench.guarded import PASSWORD, USER, Certificates, GuardedKafka, GuardedNode
from bench.measure import load_average, settle
from bench.mqtt import measure_mqtt
from bench.native import measure_native
from bench.peers.kafka.peer import ApacheKafka
from bench.progress import RESULTS, UNFINISHED, Samples
from bench.sides import SIDES, Side, with_ways
from bench.table import document, render
from bench.workloads import WORKLOADS, at_rest

from mainstem.testing.local_node import LocalNode

# Figures that need servers which ask who is there.
GUARDED = {"guarded_produce", "guarded_consume", "tls_produce", "tls_consume"}
AT_REST = {"ready", "rss_start", "idle"}
SPARK = "spark_"
AMQP = "amqp_"
MQTT = "mqtt_"
NATIVE = "native_"
# Names of several figures together, which begin with them and have a table of their own in the
# document.
GROUPS = {"spark", "amqp", "mqtt", "native"}


def main() -> int:
    """Measure, print, keep."""
    options = _options()
    # Servers lead their own process groups: a polite end must pass through our clean-up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    wanted, unknown = _wanted(options.only)
    if unknown:
        sys.stderr.write(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(GOALS)}\n")
        return 2
    peer = options.peer or not (options.quick or options.no_peer)
    rounds = options.rounds or (1 if options.quick else 3)
    samples = Samples(UNFINISHED, resume=options.resume)
    if wanted & AT_REST:
        _measure_at_rest(samples, rounds, peer=peer, idle_s=2 if options.quick else 10)
    on_spark = {name for name in wanted if name.startswith(SPARK)}
    on_amqp = {name for name in wanted if name.startswith(AMQP)}
    if on_amqp:
        measure_amqp(samples, on_amqp, rounds, quick=options.quick, peer=peer)
    on_mqtt = {name for name in wanted if name.startswith(MQTT)}
    if on_mqtt:
        measure_mqtt(samples, on_mqtt, rounds, quick=options.quick, peer=peer)
    on_native = {name for name in wanted if name.startswith(NATIVE)}
    if on_native:
        measure_native(samples, on_native, rounds, quick=options.quick, peer=peer)
    if wanted - AT_REST - on_spark - on_amqp - on_mqtt - on_native:
        _measure_servers(samples, wanted, rounds, quick=options.quick, peer=peer)
    if on_spark:
        # Spark is half a gigabyte: imported only where it is measured.
        from bench.spark import measure_spark  # noqa: PLC0415

        measure_spark(samples, on_spark, rounds, quick=options.quick, peer=peer)
    kept = samples.plain(wanted)
    table = render(kept, GOALS)
    print(table)
    print(f"\nload average {load_average():.1f}, {rounds} rounds")
    _keep(kept, rounds)
    samples.finish()
    if options.document:
        document(table, rounds, options.only if options.only in GROUPS else "")
    return 0


def _wanted(only: str) -> tuple[set[str], set[str]]:
    """The figures that are named, by themselves or by their group, and names of nothing."""
    if not only:
        return set(GOALS), set()
    named = set(only.split(","))
    groups = named & GROUPS
    found = {goal for goal in GOALS if goal in named or goal.partition("_")[0] in groups}
    return found, named - found - groups


def _measure_servers(
    samples: Samples, wanted: set[str], rounds: int, *, quick: bool, peer: bool
) -> None:
    with _sides(peer=peer, guarded=bool(wanted & GUARDED)) as sides:
        if not quick:
            # A server on a virtual machine gets faster with use; nobody is measured cold.
            _measure_loads(Samples(), sides, wanted - {"rss_through"}, volume=WARM, number=-1)
        volume = QUICK if quick else FULL
        for number in range(rounds):
            # Nobody is always the first: what a load leaves in the page cache burdens the next one.
            order = _turned(sides, number)
            due = wanted - {"rss_through"}
            _measure_loads(samples, order, due, volume=volume, number=number)
        # Memory is watched once and last: ten gigabytes through every side are enough.
        _measure_loads(samples, sides, wanted & {"rss_through"}, volume=volume, number=0)


def _measure_at_rest(samples: Samples, rounds: int, *, peer: bool, idle_s: float) -> None:
    for number in range(rounds):
        for name, server in (("mainstem", LocalNode), ("kafka", ApacheKafka)):
            side_title = f"{name} (at rest)"
            if (name == "kafka" and not peer) or samples.has("idle", side_title, number):
                continue
            with server() as running:
                side = Side(name, "at rest", running, {})
                for figure_name, figure in at_rest(side, idle_s).items():
                    samples.add(figure_name, side.title, figure)


def _measure_loads(
    samples: Samples, sides: dict[str, Side], wanted: set[str], *, volume: Volume, number: int
) -> None:
    label = "warm-up" if number < 0 else f"round {number + 1}"
    for workload, names, on in WORKLOADS:
        if not wanted & set(names):
            continue
        for key, side in sides.items():
            if key not in on or samples.has(names[0], side.title, max(number, 0)):
                continue
            settle()
            figures = workload(side, volume)
            for name, figure in figures.items():
                samples.add(name, side.title, figure)
                value = f"{figure.value:,.2f} {GOALS[name].unit}"
                sys.stderr.write(f"{label}  {name:16} {side.title:24} {value}\n")


def _turned(sides: dict[str, Side], number: int) -> dict[str, Side]:
    keys = list(sides)
    first = number % len(keys)
    return {key: sides[key] for key in keys[first:] + keys[:first]}


@contextlib.contextmanager
def _sides(*, peer: bool, guarded: bool) -> Iterator[dict[str, Side]]:
    with contextlib.ExitStack() as stack:
        node = stack.enter_context(LocalNode())
        found = {"written": SIDES["written"](node), "synced": SIDES["synced"](node)}
        if peer:
            found["kafka"] = SIDES["kafka"](stack.enter_context(ApacheKafka()))
        if guarded:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-tls-")))
            certificates = Certificates(folder)
            asking = stack.enter_context(GuardedNode(certificates))
            found["written"] = with_ways(found["written"], asking, USER, PASSWORD)
            if peer:
                other = stack.enter_context(GuardedKafka(certificates))
                found["kafka"] = with_ways(found["kafka"], other, USER, PASSWORD)
        yield found


def _keep(kept: dict[str, dict[str, list[dict[str, object]]]], rounds: int) -> None:
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    medians = {
        name: {
            title: statistics.median(float(str(figure["value"])) for figure in figures)
            for title, figures in by_side.items()
        }
        for name, by_side in kept.items()
    }
    content = {"rounds": rounds, "medians": medians, "samples": kept}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{stamp}.json").write_text(json.dumps(content, indent=1))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small volumes, one round, no peer")
    parser.add_argument("--peer", action="store_true", help="Apache Kafka in a quick run too")
    parser.add_argument("--no-peer", action="store_true", help="without Apache Kafka")
    parser.add_argument("--only", default="", help="figures to measure, with commas between")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="go on with a run that was cut short")
    parser.add_argument(
        "--document", action="store_true", help="put the table into docs/reference/benchmarks.md"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
