"""What may happen to the nodes of a cluster, one at a time.

Every fault ends with all nodes of the cluster at work, so that the next one may fall on any of
them. Promises: a fault troubles the named node only, except where its name says otherwise; a node
that is taken out of the cluster holds nothing by then.
"""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from random import Random
from typing import Any

from tests.chaos.network import NetworkCluster
from tests.chaos.powered import PoweredCluster
from tests.chaos.state import check_all_run, state_of

from mainstem.testing.local_cluster import LocalCluster, MemberNode

CLIENTS_TOO = 0.3
NODES_MIN = 3
NODES_MAX = 5
MOVED_TIMEOUT_S = 90.0
ASK_TIMEOUT_S = 20.0
POLL_S = 0.1

Fault = Callable[[LocalCluster, MemberNode, Random], None]


def _kill(_: LocalCluster, node: MemberNode, random: Random) -> None:
    node.kill9()
    time.sleep(random.choice((0.0, random.uniform(0.0, 3.0))))
    node.start()


def _pause(_: LocalCluster, node: MemberNode, random: Random) -> None:
    node.pause()
    time.sleep(random.uniform(0.5, 4.0))
    node.go_on()


def _restart(_: LocalCluster, node: MemberNode, random: Random) -> None:
    del random
    assert node.stop() == 0, node.log_tail()
    node.start()


def _cut_off(cluster: LocalCluster, node: MemberNode, random: Random) -> None:
    assert isinstance(cluster, NetworkCluster), "only there the network can be cut"
    cluster.cut_off(node.number, from_clients=random.random() < CLIENTS_TOO)
    time.sleep(random.uniform(1.0, 4.0))
    cluster.heal(node.number)


def _lose_power(cluster: LocalCluster, node: MemberNode, _: Random) -> None:
    assert isinstance(cluster, PoweredCluster), "only there the power can be cut"
    cluster.lose_power([node])


def _lose_all_power(cluster: LocalCluster, _: MemberNode, random: Random) -> None:
    del random
    assert isinstance(cluster, PoweredCluster), "only there the power can be cut"
    cluster.lose_power(cluster.nodes.values())


def _drain(cluster: LocalCluster, node: MemberNode, _: Random) -> None:
    """Everything a node writes is moved away, then it is used again."""
    asked = _another(cluster, node)
    _call(asked, f"/v1/cluster/nodes/{node.number}/drain", "PUT")
    _until(
        cluster,
        _told(asked, node, lambda row: row["writes"] == 0),
        f"node {node.number} writes nothing",
    )
    _call(asked, f"/v1/cluster/nodes/{node.number}/drain", "DELETE")


def _add(cluster: LocalCluster, _: MemberNode, random: Random) -> None:
    """One node more takes its share; when there are many, one less."""
    if len(cluster.nodes) >= NODES_MAX:
        _remove(cluster, random.choice(list(cluster.nodes.values())))
        return
    node = cluster.add()
    asked = _another(cluster, node)
    _call(asked, "/v1/cluster/rebalance", "POST")
    _until(
        cluster,
        _told(asked, node, lambda row: row["ranges"] > 0),
        f"node {node.number} holds something",
    )


def _replace(cluster: LocalCluster, node: MemberNode, _: Random) -> None:
    """A new node takes the place of an old one."""
    if len(cluster.nodes) == NODES_MIN:
        cluster.add()
    _remove(cluster, node)


def _remove(cluster: LocalCluster, node: MemberNode) -> None:
    """Drain, stop and forget a node."""
    asked, number = _another(cluster, node), node.number
    _call(asked, f"/v1/cluster/nodes/{number}/drain", "PUT")
    _until(
        cluster, _told(asked, node, lambda row: row["ranges"] == 0), f"node {number} holds nothing"
    )
    cluster.remove(number)
    _until(
        cluster, _told(asked, node, lambda row: row["status"] == "fenced"), f"node {number} is gone"
    )
    _call(asked, f"/v1/cluster/nodes/{number}", "DELETE")


FAULTS: dict[str, Fault] = {"kill -9": _kill, "pause": _pause, "restart": _restart}
NETWORK_FAULTS: dict[str, Fault] = {"partition": _cut_off}
POWER_FAULTS: dict[str, Fault] = {
    "power loss": _lose_power,
    "all lose power": _lose_all_power,
}
MEMBER_FAULTS: dict[str, Fault] = {"drain": _drain, "add": _add, "replace": _replace}


def _another(cluster: LocalCluster, node: MemberNode) -> MemberNode:
    return next(one for one in cluster.nodes.values() if one is not node)


def _told(
    asked: MemberNode, node: MemberNode, holds: Callable[[dict[str, Any]], bool]
) -> Callable[[], bool]:
    """Whether a node says so of another; of one that is new it may not have heard yet."""

    def is_so() -> bool:
        rows: list[dict[str, Any]] = _call(asked, "/v1/cluster/nodes")
        return any(holds(row) for row in rows if row["node"] == node.number)

    return is_so


def _call(node: MemberNode, path: str, method: str = "GET") -> Any:
    request = urllib.request.Request(f"http://{node.http}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=ASK_TIMEOUT_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as refusal:
        why = refusal.read().decode(errors="replace")
        raise OSError(f"{method} {path} at node {node.number}: {refusal.code} {why}") from refusal


def _until(cluster: LocalCluster, condition: Callable[[], bool], what: str) -> None:
    give_up = time.monotonic() + MOVED_TIMEOUT_S
    while not condition():
        check_all_run(cluster)
        assert time.monotonic() < give_up, (
            f"not in {MOVED_TIMEOUT_S} s: {what}\n{state_of(cluster)}\n{cluster.logs()}"
        )
        time.sleep(POLL_S)
