"""Kills, round after round, and the verdict: every record and every change exactly once.

A round is one life of the process. It ends by kill -9 of everything that belongs to it

* at a random moment; the first time within the databases' snapshots,
* with every pipeline standing at a point drawn for it, such as between the sink's write and Spark's
  commit (``points``), or
* by the death of Java alone, which the process has to notice by itself.

In between, the node is killed and started again, PostgreSQL is restarted, S3 servers and the
receiver of webhooks misbehave. The last life runs to the end of all input.
"""

import random
import time
from collections.abc import Callable
from itertools import cycle, islice

from msgspec import Struct
from tests.chaos_pipelines import databases, sinks
from tests.chaos_pipelines.connect import Connect
from tests.chaos_pipelines.environment import Environment
from tests.integration.pipelines.stage import records

from mainstem.cli.errors import ExitCode

KINDS = ("moment", "points", "java", "points", "points")
ROWS_PER_FEED = 120
LAST_CHANGES_PER_BATCH = 5_000  # many have come together while nothing ran
LAST_PATIENCE_S = 900.0
PATIENCE_S = 300.0  # a life takes half a minute where nothing else runs


class Outcome(Struct):
    """What happened and what is wrong."""

    kills: int = 0
    node_kills: int = 0
    restarts: int = 0
    faults: int = 0
    repeats: int = 0
    points: list[str] = []
    records: int = 0
    events: int = 0
    anomalies: list[str] = []

    def __str__(self) -> str:
        return (
            f"{self.kills} kills of everything ({len(self.points)} pipelines at points),"
            f" {self.node_kills} of the node, {self.restarts} restarts of PostgreSQL,"
            f" {self.faults} faults of servers, {self.repeats} webhooks repeated;"
            f" {self.records} records into each sink, {self.events} changes of databases:"
            f" {len(self.anomalies)} anomalies"
        )


def run_kills(kills: int, seed: int, say: Callable[[str], None]) -> Outcome:
    """So many lives, one more, and the verdict; ``say`` is told when a life has ended."""
    outcome = Outcome()
    draw = random.Random(seed)
    begun = time.monotonic()
    with Environment(draw) as environment:
        for load in environment.loads:
            load.start()
        try:
            environment.trouble(on=True)
            for number, kind in enumerate(islice(cycle(KINDS), kills)):
                _live(environment, outcome, draw, number=number, kind=kind)
                say(f"{time.monotonic() - begun:.0f} s: kill {number + 1} of {kills}, {kind}")
        finally:
            environment.trouble(on=False)
            for load in environment.loads:
                load.stop()
        environment.write_file(changes_per_batch=LAST_CHANGES_PER_BATCH)
        connect = Connect(environment.file, environment.folder, once=True)
        status = connect.wait(patience_s=LAST_PATIENCE_S)
        if status:
            outcome.anomalies.append(f"the last life ended with {status}: {connect.log_tail()}")
        _judge(environment, outcome)
    return outcome


def _live(
    environment: Environment, outcome: Outcome, draw: random.Random, *, number: int, kind: str
) -> None:
    """One life of the process."""
    environment.feed(ROWS_PER_FEED)
    begun = {name: environment.batches(name) for name in environment.pipelines}
    connect = Connect(environment.file, environment.folder)
    try:
        # The first time it is enough that the snapshots have begun to flow.
        awaited = [name for name in begun if number or name.startswith("sources.")]
        connect.until(
            lambda: all(environment.batches(name) > begun[name] for name in awaited),
            patience_s=PATIENCE_S,
            what=f"a batch of each of {awaited}",
        )
        if number:
            _disturb(environment, outcome, draw)
            environment.feed(ROWS_PER_FEED)
        if kind == "points":
            _stand_still(environment, outcome, connect)
        else:
            time.sleep(draw.uniform(0, 0.5))
        if kind == "java":
            status = connect.kill_java(patience_s=PATIENCE_S)
            if status != ExitCode.UNAVAILABLE or "Spark has terminated" not in connect.said():
                told = f"without Java it ended with {status}: {connect.log_tail()}"
                outcome.anomalies.append(told)
    finally:
        connect.kill9()
    environment.plan.clear()
    outcome.kills += 1
    if number == 0:
        _was_within_snapshots(environment)


def _was_within_snapshots(environment: Environment) -> None:
    for database in environment.databases:
        told = len(records(environment.node.kafka, environment.topic_of(database)))
        assert told < databases.ROWS_BEFORE, f"killed too late to cut the snapshot: {told} rows"


def _disturb(environment: Environment, outcome: Outcome, draw: random.Random) -> None:
    """The node dies and comes back; or PostgreSQL does."""
    if outcome.node_kills <= outcome.restarts:
        environment.node.kill9()
        time.sleep(draw.uniform(0, 1))
        environment.node.start()
        outcome.node_kills += 1
    else:
        environment.postgres.restart()
        outcome.restarts += 1


def _stand_still(environment: Environment, outcome: Outcome, connect: Connect) -> None:
    """Every pipeline comes to its point and waits there to be killed."""
    wanted = environment.draw_points()
    environment.plan.set(wanted)
    environment.feed(ROWS_PER_FEED)

    def all_stand() -> bool:
        return environment.plan.reached() == wanted

    try:
        connect.until(all_stand, patience_s=PATIENCE_S, what=f"points {wanted}")
    except AssertionError as error:
        raise AssertionError(f"{environment.plan.reached()} of {error}") from None
    outcome.points += [f"{name} {point}" for name, point in wanted.items()]


def _judge(environment: Environment, outcome: Outcome) -> None:
    outcome.records = len(environment.put)
    outcome.faults = environment.receiver.faults + sum(
        proxy.faults for proxy in environment.proxies
    )
    outcome.repeats = environment.receiver.repeats
    told = [each.value or b"" for each in records(environment.node.kafka, sinks.INPUT)]
    if sorted(told) != sorted(environment.put):
        outcome.anomalies.append(f"the input holds {len(told)} of {len(environment.put)} records")
    if changed := environment.receiver.changed:
        outcome.anomalies.append(f"webhook: keys came again with other bodies: {changed[:3]}")
    for name, sink in environment.sinks.items():
        outcome.anomalies += sinks.anomalies_of(name, sink, environment.put)
    for database in environment.databases:
        events = records(environment.node.kafka, environment.topic_of(database))
        outcome.events += len(events)
        outcome.anomalies += databases.anomalies_of(database, events)
