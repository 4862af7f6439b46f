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
from concurrent.futures import ThreadPoolExecutor, wait
from random import Random
from typing import Any

from tests.chaos.harsh import HarshCluster
from tests.chaos.network import NetworkCluster
from tests.chaos.oversize import send_oversize
from tests.chaos.powered import PoweredCluster
from tests.chaos.state import check_all_run, state_of

from mainstem.testing.local_cluster import LocalCluster, MemberNode
from mainstem.testing.server_process import ServerFailed

CLIENTS_TOO = 0.3
EXIT_TIMEOUT_S = 60.0
HOUR_NS = 3_600_000_000_000
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


def _fill_disk(cluster: LocalCluster, node: MemberNode, random: Random) -> None:
    """The disk of one node is full; the node goes on, and takes records again by itself."""
    _fill_disks(cluster, [node], random.uniform(2.0, 6.0))


def _fill_two_disks(cluster: LocalCluster, node: MemberNode, random: Random) -> None:
    """Two disks of three are full: nothing can be committed until there is room again."""
    _fill_disks(cluster, [node, _another(cluster, node)], random.uniform(2.0, 6.0))


def _fill_two_disks_for_a_minute(cluster: LocalCluster, node: MemberNode, _: Random) -> None:
    """Commands to the catalogue and load go on arriving all the while."""
    _fill_disks(cluster, [node, _another(cluster, node)], 60.0)


def _fill_disks(cluster: LocalCluster, nodes: list[MemberNode], seconds: float) -> None:
    assert isinstance(cluster, PoweredCluster), "only there disks are separate"
    cluster.fill(nodes)
    time.sleep(seconds)
    cluster.make_room(nodes)


def _restart_with_full_disk(cluster: LocalCluster, node: MemberNode, random: Random) -> None:
    """A node is killed and starts again while its disk is full; it waits for room."""
    assert isinstance(cluster, PoweredCluster), "only there disks are separate"
    cluster.fill([node])
    node.kill9()
    with ThreadPoolExecutor(1) as thread:
        started = thread.submit(node.start)
        wait([started], timeout=random.uniform(3.0, 6.0))
        cluster.make_room([node])
        started.result()


def _stall_syncs(cluster: LocalCluster, node: MemberNode, random: Random) -> None:
    """Nothing that a node writes gets durable for a while."""
    _switch(cluster, node, "sync_stalls", 1, random.choice((1.0, 3.0, 8.0)))


def _stall_syncs_of_each_node(cluster: LocalCluster, _: MemberNode, random: Random) -> None:
    """Every node in turn stalls for longer than any lease, election or request lasts."""
    del random
    for node in list(cluster.nodes.values()):
        _switch(cluster, node, "sync_stalls", 1, 30.0)


def _fail_reads(cluster: LocalCluster, node: MemberNode, random: Random) -> None:
    """Reads of a node's files fail for a while; a node that cannot go on without them exits."""
    before = len(node.log_text())
    _switch(cluster, node, "read_fails", 1, random.uniform(0.5, 2.0))
    if '"critical"' in node.log_text()[before:]:
        assert node.wait(timeout_s=EXIT_TIMEOUT_S), f"node {node.number} ended as if all was well"
        node.start()


def _exhaust_descriptors(cluster: LocalCluster, node: MemberNode, random: Random) -> None:
    """A node can open neither files nor connections for a while."""
    _switch(cluster, node, "no_descriptors", 1, random.uniform(0.5, 4.0))


def _move_clock(cluster: LocalCluster, node: MemberNode, random: Random) -> None:
    """The wall clock of a node jumps, and jumps back later."""
    _switch(cluster, node, "wall_offset_ns", random.choice((-HOUR_NS, HOUR_NS)), 3.0)


def _switch(cluster: LocalCluster, node: MemberNode, name: str, value: int, seconds: float) -> None:
    assert isinstance(cluster, HarshCluster), "only there nodes have fault pages"
    page = cluster.page(node)
    page.set(name, value)
    time.sleep(seconds)
    page.set(name, 0)


def _fail_syncs(cluster: LocalCluster, node: MemberNode, _: Random) -> None:
    """A sync fails: the node must exit, as it cannot know what is on its disk."""
    assert isinstance(cluster, HarshCluster), "only there nodes have fault pages"
    page = cluster.page(node)
    page.set("sync_fails", 1)
    try:
        status = node.wait(timeout_s=EXIT_TIMEOUT_S)
    except ServerFailed as failure:
        raise AssertionError(f"node {node.number} goes on after a failed sync") from failure
    finally:
        page.set("sync_fails", 0)
    assert status, f"node {node.number} ended with {status} after a failed sync"
    node.start()


def _cut_one_way(cluster: LocalCluster, node: MemberNode, random: Random) -> None:
    """A node hears the others and is not heard, or the other way round."""
    assert isinstance(cluster, NetworkCluster), "only there the network can be cut"
    outgoing = random.random() < 0.5
    cluster.cut_one_way(node.number, outgoing=outgoing)
    time.sleep(random.uniform(1.0, 4.0))
    cluster.heal_one_way(node.number, outgoing=outgoing)


def _slow_down(cluster: LocalCluster, node: MemberNode, random: Random) -> None:
    """What a node sends goes through a link that is too narrow for the load."""
    assert isinstance(cluster, NetworkCluster), "only there the network can be slowed down"
    cluster.slow_down(node.number)
    time.sleep(random.uniform(2.0, 5.0))
    cluster.speed_up(node.number)


def _send_oversize(cluster: LocalCluster, node: MemberNode, _: Random) -> None:
    """Clients of every protocol send more than the node takes; the others go on."""
    send_oversize(cluster, node)


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
NETWORK_FAULTS: dict[str, Fault] = {
    "partition": _cut_off,
    "one-way partition": _cut_one_way,
    "slow link": _slow_down,
}
DISK_FAULTS: dict[str, Fault] = {
    "disk full": _fill_disk,
    "two disks full": _fill_two_disks,
    "restart with a full disk": _restart_with_full_disk,
    "fsync stalls": _stall_syncs,
    "fsync fails": _fail_syncs,
    "reads fail": _fail_reads,
    "no descriptors": _exhaust_descriptors,
    "clock jumps": _move_clock,
}
POWER_FAULTS: dict[str, Fault] = {
    "power loss": _lose_power,
    "all lose power": _lose_all_power,
}
CLIENT_FAULTS: dict[str, Fault] = {"oversize messages": _send_oversize}
LONG_FAULTS: dict[str, Fault] = {
    "two disks full for 60 s": _fill_two_disks_for_a_minute,
    "fsync stalls for 30 s on each node": _stall_syncs_of_each_node,
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
            f"{cluster.logs()}\n{state_of(cluster)}\nnot in {MOVED_TIMEOUT_S} s: {what}"
        )
        time.sleep(POLL_S)
