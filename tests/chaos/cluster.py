"""Faults of single nodes in a cluster under acks=all load, judged by the history checker.

A majority is there at any time, so writing and reading must go on through every fault, in every
partition, and after the last one everything that was acknowledged is read.
"""

import contextlib
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from random import Random

from tests.chaos.faults import FAULTS, Fault
from tests.chaos.history import Anomaly, History, check
from tests.chaos.java_load import JavaLoader
from tests.chaos.load import GroupReader, Loader, Reader, create_topics, read_all
from tests.chaos.state import check_all_run, state_of

from mainstem.testing.local_cluster import LocalCluster

RATE_PER_S = 300
SEGMENT_BYTES = 200_000
PROGRESS_TIMEOUT_S = 60.0
CALM_S = (0.2, 1.0)

Loaders = Sequence[Loader | JavaLoader]


def fault_rounds(
    cluster: LocalCluster,
    rounds: int,
    *,
    seed: int = 0,
    faults: Mapping[str, Fault] = FAULTS,
    with_java: bool = False,
) -> tuple[History, list[Anomaly], Counter[str]]:
    """Trouble one node at a time; the history, what is wrong with it, and what was done."""
    cluster.until_three_vote()
    random = Random(seed)
    mark = uuid.uuid4().hex[:6]
    topics = {f"once-{mark}": {"internal.segment.bytes": str(SEGMENT_BYTES)}, f"plain-{mark}": {}}
    once, plain = topics
    if with_java:
        topics[f"java-{mark}"] = {"internal.segment.bytes": str(SEGMENT_BYTES)}
    create_topics(cluster.bootstrap, topics, replicas=3)
    history = History()
    done: Counter[str] = Counter()
    with contextlib.ExitStack() as stack:
        loaders: list[Loader | JavaLoader] = [
            stack.enter_context(_loader(cluster, once, history, idempotent=True)),
            stack.enter_context(_loader(cluster, plain, history, idempotent=False)),
        ]
        if with_java:
            java = JavaLoader(cluster.bootstrap, f"java-{mark}", history, rate_per_s=RATE_PER_S)
            loaders.append(stack.enter_context(java))
        stack.enter_context(Reader(cluster.bootstrap, list(topics), history))
        group = GroupReader(cluster.bootstrap, once, history)
        stack.callback(group.close)
        for name, _ in zip(_rotation(faults, random), range(rounds), strict=False):
            _await_progress(cluster, loaders, group, done)
            group.turn(random.uniform(*CALM_S))
            node = random.choice(list(cluster.nodes.values()))
            done[name] += 1
            try:
                faults[name](cluster, node, random)
            except OSError as error:  # a node that was asked for something did not answer
                check_all_run(cluster)
                found = f"{state_of(cluster)}\n{cluster.logs()}"
                raise AssertionError(f"{name} of node {node.number}: {error!r}\n{found}") from error
        _await_progress(cluster, loaders, group, done)
        group.bootstrap = cluster.bootstrap
        group.replace_member()
        _await_progress(cluster, loaders, group, done)
        for loader in loaders:
            loader.finish()
    history.final = read_all(cluster.bootstrap, list(topics))
    strict = {loader.name for loader in loaders if loader is not loaders[1]}
    return history, check(history, once=strict), done


def _loader(cluster: LocalCluster, topic: str, history: History, *, idempotent: bool) -> Loader:
    bootstrap = cluster.bootstrap
    return Loader(bootstrap, topic, history, idempotent=idempotent, rate_per_s=RATE_PER_S)


def _rotation(faults: Mapping[str, Fault], random: Random) -> Iterator[str]:
    """Every kind of fault as often as the others, in an order that changes."""
    while True:
        turn = list(faults)
        random.shuffle(turn)
        yield from turn


def _await_progress(
    cluster: LocalCluster, loaders: Loaders, group: GroupReader, done: Counter[str]
) -> None:
    """Until every partition acknowledges to every producer again and the group reads again."""
    before = [list(loader.reached) for loader in loaders]
    deadline = time.monotonic() + PROGRESS_TIMEOUT_S
    received = group.received
    while group.received == received or not all(
        now > count
        for loader, counts in zip(loaders, before, strict=True)
        for now, count in zip(loader.reached, counts, strict=True)
    ):
        check_all_run(cluster)
        assert time.monotonic() < deadline, (
            f"no progress after {dict(done)}: acknowledged {before} and "
            f"{[loader.reached for loader in loaders]}, the group has read {received} and "
            f"{group.received}\n{state_of(cluster)}\n{cluster.logs()}"
        )
        group.turn(0.1)
