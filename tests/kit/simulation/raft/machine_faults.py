"""Faults of the machines and links of a Raft group under ``fault_run``, each for some time.

Reads fail (EIO), nothing can be opened (EMFILE), processes pause while time passes, wall clocks
jump, messages take seconds longer, and cuts affect one direction only.
"""

import asyncio
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Final

from mainstem.testing.simulation.faulty_files import FaultyFiles, FileFault
from mainstem.testing.simulation.raft.group import Node, RaftCluster, SimulatedLoop

if TYPE_CHECKING:
    from collections.abc import Callable

MACHINE_FAULTS: Final = (
    "failed reads", "descriptor shortages", "slow links", "one-way cuts", "pauses", "clock jumps",
)  # fmt: skip
SHORT_S: Final = 4.0
PAUSE_S: Final = 8.0
SLOW_S: Final = 2.0
LINK_S: Final = 8.0  # how long a link is slow or cut
CLOCK_JUMP_MS: Final = 2 * 3_600_000


class RaftMachineFaults:
    """Injects these faults one after the other.

    Args:
        cluster: the group.
        random: decides.
        files: makes file calls fail.
        wanted: the names of the faults to inject, from ``MACHINE_FAULTS``.
    """

    def __init__(
        self, cluster: RaftCluster, random: Random, files: FaultyFiles, wanted: tuple[str, ...]
    ) -> None:
        self._cluster = cluster
        self._random = random
        self._files = files
        self.counts: Counter[str] = Counter()
        self.may_exit: set[Node] = set()  # processes whose reads have failed, or may have
        acts: tuple[Callable[[], None], ...] = (
            self._fail_reads, self._use_up_descriptors, self._slow_down, self._cut_one_way,
            self._pause, self._set_clock,
        )  # fmt: skip
        named = zip(MACHINE_FAULTS, acts, strict=True)
        self._acts = [(name, act) for name, act in named if name in wanted]
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop), "time is virtual"
        self._loop = loop

    async def inject_until(self, until_s: float) -> None:
        """Inject faults until that time."""
        while self._acts and self._loop.time() < until_s:
            await asyncio.sleep(self._random.uniform(0.5, 6.0))
            name, act = self._random.choice(self._acts)
            self.counts[name] += 1
            act()

    def end(self) -> None:
        """End all of them, except those of links, which ``RaftCluster.heal`` ends."""
        for node in self._cluster.nodes.values():
            self._loop.resume(node.id)
            self._files.end(node.folder)

    def process_ended(self, node: Node) -> None:
        """End the faults of a process that has ended."""
        self.may_exit.discard(node)
        self._loop.resume(node.id)
        self._files.end(node.folder, FileFault.READS_FAIL, FileFault.NO_DESCRIPTORS)

    def has(self, node: Node, *faults: FileFault) -> bool:
        """Whether the disk of a node has one of these faults."""
        return any(self._files.has(node.folder, fault) for fault in faults)

    def _node(self) -> Node:
        return self._random.choice(list(self._cluster.nodes.values()))

    def _fail_reads(self) -> None:
        node = self._node()
        self.may_exit.add(node)
        self._fail(node, FileFault.READS_FAIL)

    def _use_up_descriptors(self) -> None:
        self._fail(self._node(), FileFault.NO_DESCRIPTORS)

    def _fail(self, node: Node, fault: FileFault) -> None:
        self._files.begin(node.folder, fault)
        seconds = self._random.random() * SHORT_S
        self._loop.call_later(seconds, self._files.end, node.folder, fault)

    def _slow_down(self) -> None:
        """Slow down a link in one direction or both, by different delays."""
        source, target = self._random.sample(list(self._cluster.nodes), 2)
        for way in ((source, target), (target, source))[: self._random.randint(1, 2)]:
            self._cluster.slow[way] = self._random.random() ** 2 * SLOW_S
            self._loop.call_later(self._random.random() * LINK_S, self._cluster.slow.pop, way, None)

    def _cut_one_way(self) -> None:
        """Cut one direction of a link, or everything that a node should receive."""
        source, target = self._random.sample(list(self._cluster.nodes), 2)
        sources = list(self._cluster.nodes) if self._random.random() < 0.3 else [source]
        ways = {(each, target) for each in sources if each != target}
        self._cluster.cut |= ways
        self._loop.call_later(
            self._random.random() * LINK_S, self._cluster.cut.difference_update, ways
        )

    def _pause(self) -> None:
        """Pause a process, more often the leader than others."""
        leader = self._cluster.leader()
        node = leader if leader is not None and self._random.random() < 0.5 else self._node()
        self._loop.pause(node.id)
        seconds = self._random.random() ** 2 * PAUSE_S
        self._loop.call_later(seconds, self._loop.resume, node.id)

    def _set_clock(self) -> None:
        self._node().clock.ahead_ms = self._random.randint(-CLOCK_JUMP_MS, CLOCK_JUMP_MS)
