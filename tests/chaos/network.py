"""A cluster whose nodes are in network namespaces of their own, so that they can be cut off.

    node 1 ─ veth ┐
    node 2 ─ veth ┼─ bridge ─ clients
    node 3 ─ veth ┘

Cut off from the other nodes, a node is still reached by clients: the harder case, since it believes
for a while that it leads. Needs root, ``ip`` and ``nsenter``.
"""

import itertools
import os
import subprocess
from collections.abc import Sequence

from mainstem.testing.local_cluster import LocalCluster, MemberNode

# One network for every process, so that two of them may test at once.
NETWORK = f"10.231.{os.getpid() % 254 + 1}"
# Less than the load of the chaos suite needs, more than leases and elections do.
SLOW_RATE = "1500kbit"
_numbers = itertools.count()


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def _try(*command: str) -> None:
    subprocess.run(command, check=False, capture_output=True)


class NetworkCluster(LocalCluster):
    """See the module's text; the bridge and the namespaces are gone when the block is left."""

    def __init__(self, count: int = 3, *, arguments: Sequence[str] = ()) -> None:
        super().__init__(count, arguments=arguments)
        # A namespace outlives its last process by a while: the next cluster has names of its own.
        self._mark = f"ms{os.getpid() % 100_000}x{next(_numbers) % 100}"
        self._count_made = 0
        self._cut: set[int] = set()
        _run("ip", "link", "add", f"{self._mark}b", "type", "bridge")
        _run("ip", "addr", "add", f"{NETWORK}.1/24", "dev", f"{self._mark}b")
        _run("ip", "link", "set", f"{self._mark}b", "up")

    def member(self, number: int, join: Sequence[str]) -> MemberNode:
        """A node in a namespace of its own."""
        place, inside, outside = self._place(number), self._inside(number), self._cable(number)
        host = f"{NETWORK}.{10 + number}"
        _run("ip", "netns", "add", place)
        self._count_made = max(self._count_made, number)
        _run("ip", "link", "add", outside, "type", "veth", "peer", "name", inside)
        _run("ip", "link", "set", inside, "netns", place)
        _run("ip", "link", "set", outside, "master", f"{self._mark}b", "up")
        within = ("ip", "netns", "exec", place)
        _run(*within, "ip", "addr", "add", f"{host}/24", "dev", inside)
        _run(*within, "ip", "link", "set", inside, "up")
        _run(*within, "ip", "link", "set", "lo", "up")
        flags = ["--kafka-host", host, "--http-host", host, "--insecure"]
        for name in ("cluster.peer_host", "amqp.host", "mqtt.host"):
            flags += ["--set", f"{name}={host}"]
        arguments = (*self.arguments, *flags)
        node = MemberNode(number, self.folder, join, arguments)
        # Unlike ``ip netns exec`` this keeps the mounts that all others see.
        node.prefix = ("nsenter", f"--net=/run/netns/{place}")
        return node

    def cut_off(self, number: int, *, from_clients: bool) -> None:
        """Let a node reach no other node, or nobody at all."""
        if from_clients:
            _run("ip", "link", "set", self._cable(number), "down")
            return
        self._routes("add", number)

    def heal(self, number: int) -> None:
        """Let a node reach everybody again."""
        _run("ip", "link", "set", self._cable(number), "up")
        if number in self._cut:
            self._routes("del", number)

    def cut_one_way(self, number: int, *, outgoing: bool) -> None:
        """Let what a node sends to the others vanish, or what they send to it."""
        self._one_way("add", number, outgoing=outgoing)

    def heal_one_way(self, number: int, *, outgoing: bool) -> None:
        """End what ``cut_one_way`` began."""
        self._one_way("del", number, outgoing=outgoing)

    def slow_down(self, number: int) -> None:
        """Let everything that a node sends go through a narrow link."""
        shape = ("root", "tbf", "rate", SLOW_RATE, "burst", "16kb", "latency", "800ms")
        _run(*self._within(number), "tc", "qdisc", "add", "dev", self._inside(number), *shape)

    def speed_up(self, number: int) -> None:
        """End what ``slow_down`` began."""
        _run(*self._within(number), "tc", "qdisc", "del", "dev", self._inside(number), "root")

    def _one_way(self, verb: str, number: int, *, outgoing: bool) -> None:
        for other in self.nodes:
            if other != number:
                here, there = (number, other) if outgoing else (other, number)
                self._route(verb, here, there)

    def _route(self, verb: str, here: int, there: int) -> None:
        hole = ("ip", "route", verb, "blackhole", f"{NETWORK}.{10 + there}/32")
        _run(*self._within(here), *hole)

    def _within(self, number: int) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self._place(number))

    def _inside(self, number: int) -> str:
        return f"{self._mark}i{number}"

    def _routes(self, verb: str, number: int) -> None:
        """Packets between a node and the others vanish, on both sides; or do so no more."""
        for other in self.nodes:
            if other != number:
                self._route(verb, number, other)
                self._route(verb, other, number)
        self._cut ^= {number}

    def close(self) -> None:
        """Kill what still runs and take the network down."""
        super().close()
        for number in range(1, self._count_made + 1):
            _try("ip", "netns", "del", self._place(number))
            _try("ip", "link", "del", self._cable(number))
        _try("ip", "link", "del", f"{self._mark}b")

    def _place(self, number: int) -> str:
        return f"{self._mark}n{number}"

    def _cable(self, number: int) -> str:
        return f"{self._mark}o{number}"
