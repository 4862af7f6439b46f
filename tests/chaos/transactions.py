"""Transactions while node and clients are killed, stopped and woken, judged by their history.

    producers ──▶ input ──▶ chains (a transactional id of their own) ──▶ their outputs
                        └─▶ two members of a group ───────────────────▶ output of the group
    a reader follows all topics and asks for the stable ends

Half of the clients are librdkafka, which speaks the first version of transactions, half are the
house's own, which speak the second.

Promises: zero anomalies are found only if faults of every kind were met, every zombie came back and
was fenced, everything was processed to the end and every stream became stable.
"""

import contextlib
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, TopicPartition
from tests.chaos.history import Anomaly, Stream
from tests.chaos.load import PARTITIONS, create_topics, seen
from tests.chaos.transaction_cast import Actor, Cast, Part
from tests.chaos.transaction_client import CALL_TIMEOUT_S, patiently, reader_settings
from tests.chaos.transaction_history import check
from tests.chaos.transaction_journal import Fold, lines_of
from tests.chaos.transaction_ops import Fate, Observed, TransactionHistory
from tests.chaos.transaction_process import FENCED_STATUS

TICK_S = 0.05
AIM_S = 0.0005
AIM_TIMEOUT_S = 3.0
# About as long as a commit takes, from the wish to the last marker.
COMMIT_S = 0.012
PAUSE_S = 0.05
FAULT_EVERY_S = (0.8, 2.5)
SETTLE_TIMEOUT_S = 60.0
MARKERS_TIMEOUT_S = 10.0
# A client may have asked twice when its answer took this long.
SLOW_S = 4.0
PRODUCERS = ("producer", "modern-producer")
# Chains whose transactional id is all that fences them.
SINGLES = ("chain", "modern-chain")
CHAINS = (*SINGLES, "member")
TOPICS = ("input", "output", "modern-output", "group-output")
# Group to what it reads and writes.
FLOWS = {
    "chain": ("input", "output"),
    "modern": ("input", "modern-output"),
    "group": ("input", "group-output"),
}


class Server(Protocol):
    """What is killed and stopped: a node or Apache Kafka."""

    kafka: str

    @property
    def pid(self) -> int: ...
    def start(self) -> None: ...
    def kill9(self) -> None: ...
    def log_tail(self) -> str: ...


@dataclass
class Run:
    """What a run came to."""

    history: TransactionHistory
    anomalies: list[Anomaly]
    faults: Counter[str]
    fenced_zombies: int
    seconds: float

    @property
    def figures(self) -> dict[str, int]:
        """How much was done."""
        history = self.history
        fates = Counter(one.fate for one in history.transactions)
        return {
            "transactions committed": fates[Fate.COMMITTED],
            "transactions aborted": fates[Fate.NOTHING],
            "transactions without an answer": fates[Fate.EITHER],
            "records of transactions stored": sum(len(one) for one in history.final.values()),
            "records of transactions read": len(history.reads),
            "stable ends read": len(history.snapshots),
            "positions of groups read": len(history.observed),
            "zombies fenced": self.fenced_zombies,
        }

    @property
    def summary(self) -> str:
        """One line of figures, then the first anomalies."""
        done = ", ".join(f"{count} {name}" for name, count in self.figures.items())
        faults = ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items()))
        total = f"{len(self.history.transactions)} transactions: {done}"
        line = f"{total}; {faults}; {self.seconds:.0f} s; {len(self.anomalies)} anomalies"
        return "\n".join([line, *(str(anomaly) for anomaly in self.anomalies[:20])])


@dataclass
class Environment:
    """Node, clients, and everything that was done to them."""

    node: Server
    cast: Cast
    random: Random
    faults: Counter[str] = field(default_factory=Counter)
    outages: list[tuple[float, float]] = field(default_factory=list)
    # Those who were stopped for good and come back nevertheless.
    zombies: list[Actor] = field(default_factory=list)
    # Further faults by name, each of which ends with all nodes at work.
    more: Mapping[str, Callable[[], None]] = field(default_factory=dict)
    # What has to be done at a later time.
    due: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    def tick(self) -> None:
        """Do what is due."""
        now = time.monotonic()
        ready = [act for at, act in self.due if at <= now]
        self.due = [entry for entry in self.due if entry[0] > now]
        for act in ready:
            act()
        self.cast.renew()

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """Do something when the time has come."""
        self.due.append((time.monotonic() + seconds, act))

    def kill_node(self) -> None:
        """The node dies and comes back on the same data."""
        began = time.monotonic()
        self.node.kill9()
        time.sleep(self.random.uniform(0, 0.3))
        self.node.start()
        self.outages.append((began, time.monotonic()))

    def kill_in_commit(self) -> None:
        """The node dies a moment after somebody asked for a commit, before or after it answers."""
        actor = self.random.choice(self.cast.acting(*PRODUCERS))
        deadline = time.monotonic() + AIM_TIMEOUT_S
        while not actor.is_ending() and time.monotonic() < deadline:
            time.sleep(AIM_S)
        time.sleep(self.random.uniform(0, COMMIT_S))
        self.kill_node()

    def pause_node(self) -> None:
        """The node stands still for a while."""
        began = time.monotonic()
        os.killpg(self.node.pid, signal.SIGSTOP)
        time.sleep(self.random.uniform(0.1, 1.5))
        os.killpg(self.node.pid, signal.SIGCONT)
        self.outages.append((began, time.monotonic()))

    def kill_client(self) -> None:
        """A client dies within whatever it is doing, and a successor takes its id over."""
        actor = self.random.choice(self.cast.acting(*PRODUCERS, *CHAINS))
        actor.kill()
        self.cast.replace(actor)

    def pause_client(self) -> None:
        """A client stands still, too short for anybody to notice."""
        actor = self.random.choice(self.cast.acting())
        actor.stop()
        self.later(self.random.uniform(0.2, 1.5), actor.wake)

    def pause_member(self) -> None:
        """A member stands still until the others have its partitions, and comes back."""
        members = self.cast.acting("member")
        if len(members) < 2:
            return  # one must go on
        actor = self.random.choice(members)
        actor.stop()
        self.later(self.random.uniform(7.0, 9.0), actor.wake)

    def make_zombie(self) -> None:
        """A client stands still, a successor takes its id over, and then it comes back."""
        # One that has not come to its id yet would take it from its successor, and rightly so.
        actors = [one for one in self.cast.acting(*PRODUCERS, *SINGLES) if one.has_id()]
        if not actors:
            return  # all are starting
        actor = self.random.choice(actors)
        actor.stop()
        self.zombies.append(actor)
        successor = self.cast.replace(actor)
        self.later(1.0, lambda: self._wake_zombie(actor, successor))

    def _wake_zombie(self, actor: Actor, successor: Actor) -> None:
        if successor.count() or successor.is_replaced:
            actor.wake()
        else:
            self.later(0.5, lambda: self._wake_zombie(actor, successor))

    def next_fault(self, kinds: Iterator[str]) -> None:
        """Let the next kind of fault happen."""
        kind = next(kinds)
        self.faults[kind.replace("_", " ")] += 1
        if kind in self.more:
            began = time.monotonic()
            self.more[kind]()
            self.outages.append((began, time.monotonic()))
        else:
            getattr(self, kind)()


NOTHING_MORE: Mapping[str, Callable[[], None]] = {}
KINDS = {
    "kill_node": 1,
    "kill_in_commit": 2,
    "pause_node": 2,
    "kill_client": 3,
    "pause_client": 2,
    "make_zombie": 3,
    "pause_member": 1,
}


def run_transactions(
    node: Server,
    wanted: int,
    *,
    seed: int = 0,
    pause_s: float = PAUSE_S,
    more: Mapping[str, Callable[[], None]] = NOTHING_MORE,
) -> Run:
    """Run until so many transactions have ended under faults; the history and its anomalies.

    ``more`` are faults beside those of ``KINDS``.
    """
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="mainstem-transactions-") as folder,
        Cast(Path(folder)) as cast,
    ):
        create_topics(node.kafka, {name: {} for name in TOPICS})
        environment = Environment(node, cast, Random(seed), more=more)
        for part in parts(node.kafka, pause_s):
            cast.start(part)
        _play(environment, wanted)
        _calm(environment)
        history = TransactionHistory(chains=dict(FLOWS))
        _close(environment, history)
        for actor in cast.actors:
            fold = Fold(history, actor.part.name, actor.incarnation, _doubt(environment, actor))
            fold.take(lines_of(actor.journal))
    anomalies = check(history)
    return Run(
        history, anomalies, environment.faults, len(environment.zombies), time.monotonic() - began
    )


def parts(bootstrap: str, pause_s: float) -> list[Part]:
    """The clients that a load consists of."""
    basic = ("--bootstrap", bootstrap, "--pause-s", str(pause_s))
    flows = {
        group: (*basic, "--topic", read, "--group", group, "--output", written)
        for group, (read, written) in FLOWS.items()
    }
    return [
        Part("producer-0", "producer", (*basic, "--topic", "input")),
        Part("producer-1", "producer", (*basic, "--topic", "input")),
        Part("modern-0", "modern-producer", (*basic, "--topic", "input")),
        Part("modern-1", "modern-producer", (*basic, "--topic", "input")),
        Part("chain", "chain", flows["chain"]),
        Part("modern-chain", "modern-chain", flows["modern"]),
        Part("member-0", "member", flows["group"]),
        Part("member-1", "member", flows["group"]),
        Part("reader", "reader", (*basic, "--topic", ",".join(TOPICS))),
    ]


def _play(environment: Environment, wanted: int) -> None:
    """Faults of all kinds in turn, until enough transactions have ended."""
    shares = KINDS | dict.fromkeys(environment.more, 1)
    kinds = _rotation(shares, environment.random)
    next_at = time.monotonic() + 2.0
    while environment.cast.count() < wanted or len(environment.faults) < len(shares):
        environment.tick()
        if time.monotonic() >= next_at:
            environment.next_fault(kinds)
            next_at = time.monotonic() + environment.random.uniform(*FAULT_EVERY_S)
        time.sleep(TICK_S)


def _rotation(shares: Mapping[str, int], random: Random) -> Iterator[str]:
    """Every kind of fault in its share, in an order that changes."""
    while True:
        turn = [kind for kind, share in shares.items() for _ in range(share)]
        random.shuffle(turn)
        yield from turn


def _calm(environment: Environment) -> None:
    """No more faults: sleepers wake, zombies learn that they are."""
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    while environment.due or environment.cast.zombies():
        zombies = environment.cast.zombies()
        stories = "\n".join(environment.cast.story(one) for one in zombies)
        assert time.monotonic() < deadline, f"not fenced: {stories}\n{environment.node.log_tail()}"
        environment.tick()
        time.sleep(TICK_S)
    for zombie in environment.zombies:
        assert zombie.process.returncode == FENCED_STATUS, environment.cast.story(zombie)


def _close(environment: Environment, history: TransactionHistory) -> None:
    """Let everything be processed, and read it all one last time."""
    environment.cast.finish(*PRODUCERS)
    bootstrap = environment.node.kafka
    history.final, history.ends = read_stable(bootstrap, ["input"])
    for group in history.chains:
        _await_processed(environment, bootstrap, group, history.final)
    environment.cast.finish(*CHAINS)
    environment.cast.finish("reader")
    history.final, history.ends = read_stable(bootstrap, list(TOPICS))
    for group, (topic, _) in history.chains.items():
        started = time.monotonic()
        for place, offset in positions_of(bootstrap, group, topic).items():
            seen_at = time.monotonic()
            history.observed.append(Observed(group, place, offset, started, seen_at))


def _await_processed(
    environment: Environment, bootstrap: str, group: str, final: dict[Stream, list[tuple[int, str]]]
) -> None:
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    while True:
        known = positions_of(bootstrap, group, "input")
        left = [
            stream
            for stream, records in final.items()
            if records and known[stream] <= records[-1][0]
        ]
        if not left:
            return
        assert time.monotonic() < deadline, f"{group} does not get to the end of {left}: {known}"
        for actor in environment.cast.acting(*CHAINS):
            if actor.process.poll() is not None:
                environment.cast.renew()
        time.sleep(0.2)


def _doubt(environment: Environment, actor: Actor) -> Callable[[float, float], bool]:
    """Whether an answer may have been lost on its way to a client."""
    times = [*environment.outages, *actor.pauses]

    def disturbed(start: float, until: float) -> bool:
        if until - start > SLOW_S:
            return True
        return any(start <= upto and since <= until for since, upto in times)

    return disturbed


def positions_of(bootstrap: str, group: str, topic: str) -> dict[Stream, int]:
    """Where a group stands."""
    consumer = Consumer(reader_settings(bootstrap, group))
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    with contextlib.closing(consumer):
        known = patiently(lambda: consumer.committed(places, CALL_TIMEOUT_S))
    return {(one.topic, one.partition): max(one.offset, -1) for one in known}


def _settled_ends(
    reader: Consumer, anyone: Consumer, places: list[TopicPartition]
) -> dict[Stream, tuple[int, int]]:
    """(stable end, end) of every stream, once they agree: a commit is confirmed before its markers
    are written. Those that never agree are left to the checker.
    """
    deadline = time.monotonic() + MARKERS_TIMEOUT_S
    while True:
        ends = {
            (one.topic, one.partition): (
                int(reader.get_watermark_offsets(one, CALL_TIMEOUT_S)[1]),
                int(anyone.get_watermark_offsets(one, CALL_TIMEOUT_S)[1]),
            )
            for one in places
        }
        settled = all(stable == until for stable, until in ends.values())
        if settled or time.monotonic() > deadline:
            return ends
        time.sleep(TICK_S)


def read_stable(
    bootstrap: str, topics: list[str]
) -> tuple[dict[Stream, list[tuple[int, str]]], dict[Stream, tuple[int, int]]]:
    """Every committed record, once all is quiet, and (stable end, end) of every stream."""
    places = [TopicPartition(topic, number, 0) for topic in topics for number in range(PARTITIONS)]
    reader = Consumer(reader_settings(bootstrap, "unused") | {"enable.partition.eof": True})
    anyone = Consumer(
        reader_settings(bootstrap, "unused") | {"isolation.level": "read_uncommitted"}
    )
    found: dict[Stream, list[tuple[int, str]]] = {(one.topic, one.partition): [] for one in places}
    with contextlib.closing(reader), contextlib.closing(anyone):
        ends = _settled_ends(reader, anyone, places)
        reader.assign(places)
        left = set(found)
        deadline = time.monotonic() + SETTLE_TIMEOUT_S
        while left:
            assert time.monotonic() < deadline, f"the last reading does not end: {left}"
            for message in reader.consume(1_000, timeout=0.5):
                error = message.error()
                if error is None:
                    stream, offset, value = seen(message)
                    found[stream].append((offset, value))
                elif error.code() == KafkaError._PARTITION_EOF:
                    topic, partition = message.topic(), message.partition()
                    assert topic is not None
                    assert partition is not None
                    left.discard((topic, partition))
    return found, ends
