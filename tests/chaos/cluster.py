"""Faults of single nodes in a cluster of three under acks=all load, judged by the history checker.

A majority is there at any time, so writing and reading must go on through every fault, and after
the last one everything that was acknowledged is read from each node in turn.
"""

import contextlib
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random

from tests.chaos.history import Anomaly, History, check
from tests.chaos.load import GroupReader, Loader, Reader, create_topics, read_all
from tests.chaos.network import NetworkCluster
from tests.chaos.powered import PoweredCluster

from mainstem.testing.local_cluster import LocalCluster, MemberNode

RATE_PER_S = 300
SEGMENT_BYTES = 200_000
PROGRESS_TIMEOUT_S = 60.0
CALM_S = (0.3, 1.5)
CLIENTS_TOO = 0.3

Fault = Callable[[LocalCluster, MemberNode, Random], None]


def _kill(_: LocalCluster, node: MemberNode, random: Random) -> None:
    node.kill9()
    time.sleep(random.uniform(0.0, 4.0))
    node.start()


def _pause(_: LocalCluster, node: MemberNode, random: Random) -> None:
    node.pause()
    time.sleep(random.uniform(0.5, 5.0))
    node.go_on()


def _restart(_: LocalCluster, node: MemberNode, random: Random) -> None:
    assert node.stop() == 0, node.log_tail()
    node.start()


def _cut_off(cluster: LocalCluster, node: MemberNode, random: Random) -> None:
    assert isinstance(cluster, NetworkCluster), "only there the network can be cut"
    cluster.cut_off(node.number, from_clients=random.random() < CLIENTS_TOO)
    time.sleep(random.uniform(1.0, 5.0))
    cluster.heal(node.number)


def _lose_power(cluster: LocalCluster, node: MemberNode, _: Random) -> None:
    assert isinstance(cluster, PoweredCluster), "only there the power can be cut"
    cluster.lose_power([node])


def _lose_all_power(cluster: LocalCluster, _: MemberNode, random: Random) -> None:
    assert isinstance(cluster, PoweredCluster), "only there the power can be cut"
    cluster.lose_power(cluster.nodes.values())


FAULTS: dict[str, Fault] = {"kill -9": _kill, "pause": _pause, "restart": _restart}
NETWORK_FAULTS: dict[str, Fault] = {"partition": _cut_off}
POWER_FAULTS: dict[str, Fault] = {"power loss": _lose_power, "all lose power": _lose_all_power}


def fault_rounds(
    cluster: LocalCluster,
    rounds: int,
    *,
    seed: int = 0,
    faults: Mapping[str, Fault] = FAULTS,
) -> tuple[History, list[Anomaly], Counter[str]]:
    """Trouble one node at a time; the history, what is wrong with it, and what was done."""
    random = Random(seed)
    mark = uuid.uuid4().hex[:6]
    topics = {f"once-{mark}": {"segment.bytes": str(SEGMENT_BYTES)}, f"plain-{mark}": {}}
    once, plain = topics
    create_topics(cluster.bootstrap, topics, replicas=3)
    history = History()
    done: Counter[str] = Counter()
    with contextlib.ExitStack() as stack:
        loaders = [
            stack.enter_context(
                Loader(
                    cluster.bootstrap,
                    topic,
                    history,
                    idempotent=idempotent,
                    rate_per_s=RATE_PER_S,
                )
            )
            for topic, idempotent in ((once, True), (plain, False))
        ]
        stack.enter_context(Reader(cluster.bootstrap, list(topics), history))
        group = GroupReader(cluster.bootstrap, once, history)
        for _ in range(rounds):
            _await_progress(cluster, loaders, group)
            group.turn(random.uniform(*CALM_S))
            name = random.choice(list(faults))
            node = random.choice(list(cluster.nodes.values()))
            faults[name](cluster, node, random)
            done[name] += 1
        _await_progress(cluster, loaders, group)
        group.replace_member()
        _await_progress(cluster, loaders, group)
        for loader in loaders:
            loader.finish()
        group.close()
    history.final = read_all(cluster.bootstrap, list(topics))
    return history, check(history, once={loaders[0].name}), done


def _await_progress(cluster: LocalCluster, loaders: list[Loader], group: GroupReader) -> None:
    """Until every producer gets acknowledgements again and the group reads again."""
    before = [loader.acknowledged for loader in loaders]
    deadline = time.monotonic() + PROGRESS_TIMEOUT_S
    received = group.received
    while group.received == received or not all(
        loader.acknowledged > count for loader, count in zip(loaders, before, strict=True)
    ):
        assert time.monotonic() < deadline, (
            f"no progress: acknowledged {before} and {[each.acknowledged for each in loaders]}, "
            f"the group has read {received} and {group.received}\n{cluster.logs()}"
        )
        group.turn(0.1)
