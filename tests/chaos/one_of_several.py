"""A cluster with the face of a single server: whichever of its nodes is killed or paused next."""

from collections.abc import Callable, Mapping
from functools import partial
from random import Random

from tests.chaos.faults import Fault

from mainstem.testing.local_cluster import LocalCluster, MemberNode


class OneOfSeveral:
    """Kills and pauses fall on another node each time; clients are told of all of them."""

    def __init__(self, cluster: LocalCluster, *, seed: int = 0) -> None:
        self._cluster = cluster
        self._random = Random(seed)
        self._victim = self._next()
        self.kafka = cluster.bootstrap

    @property
    def pid(self) -> int:
        """The process of the node whose turn it is; the same until one was killed."""
        return self._victim.pid

    def kill9(self) -> None:
        """End one node at once."""
        self._victim.kill9()

    def start(self) -> None:
        """Start it again; the next fault falls on another."""
        self._victim.start()
        self._victim = self._next()

    def log_tail(self) -> str:
        """The last lines of every node."""
        return self._cluster.logs()

    def bound(self, faults: Mapping[str, Fault]) -> dict[str, Callable[[], None]]:
        """Faults of a cluster; each falls on any of its nodes."""
        return {name: partial(self._strike, fault) for name, fault in faults.items()}

    def _strike(self, fault: Fault) -> None:
        fault(self._cluster, self._next(), self._random)

    def _next(self) -> MemberNode:
        return self._random.choice(list(self._cluster.nodes.values()))
