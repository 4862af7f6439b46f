"""Nodes hear of each other by gossip: who is there, who is silent, and where they are."""

import json
import socket
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mainstem.testing.local_cluster import LocalCluster, MemberNode
from mainstem.testing.local_node import LocalNode


def rows(node: LocalNode) -> dict[int, Any]:
    with urllib.request.urlopen(f"http://{node.http}/v1/cluster", timeout=10) as answer:
        return {row["node"]: row for row in json.loads(answer.read())["nodes"]}


def seen(node: MemberNode) -> dict[int, str]:
    return {number: row["seen"] for number, row in rows(node).items()}


def until(holds: Callable[[], bool], cluster: LocalCluster, *, timeout_s: float = 30.0) -> None:
    give_up = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < give_up, cluster.logs()
        time.sleep(0.1)


def takes_datagrams(port: int) -> bool:
    """Whether a process has the UDP port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def sockets_of(pid: int) -> set[str]:
    """The numbers of a process's sockets."""
    targets = [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]
    return {target[8:-1] for target in targets if target.startswith("socket:[")}


def test_nodes_see_each_other_notice_silence_and_find_one_that_moved(
    cluster: LocalCluster,
) -> None:
    everyone = {1: "alive", 2: "alive", 3: "alive"}
    for node in cluster.nodes.values():
        until(lambda node=node: seen(node) == everyone, cluster)  # type: ignore[misc]
        assert takes_datagrams(int(node.peers.rpartition(":")[2]))
    third = cluster.nodes[3]
    third.pause()
    until(lambda: seen(cluster.nodes[1])[3] in {"suspected", "dead"}, cluster)
    third.go_on()
    until(lambda: seen(cluster.nodes[1]) == everyone, cluster)
    assert third.stop() == 0
    until(lambda: seen(cluster.nodes[2])[3] == "left", cluster)
    third.peers = "127.0.0.1:0"  # it comes back at another address
    third.start()
    until(lambda: seen(cluster.nodes[2]) == everyone == seen(third), cluster)
    until(lambda: rows(cluster.nodes[1])[3]["cpu"] is not None, cluster)


def test_a_lone_node_opens_no_port_for_gossip() -> None:
    with LocalNode() as node:
        listed = Path("/proc/net/udp").read_text().splitlines()[1:]
        assert not {line.split()[9] for line in listed} & sockets_of(node.pid)
        assert rows(node)[1]["seen"] == "alive"
