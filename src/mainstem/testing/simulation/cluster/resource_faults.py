"""Faults below the nodes of ``simulator``: disks, clocks, processes and links.

Each fault lasts for some time. Disks that are full or stalled, missing descriptors and paused
processes end no node; a failed sync does, and data that the kernel dropped is then not trusted.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from mainstem.testing.simulation.cluster.node import SimNode
from mainstem.testing.simulation.cluster.nodes import WATCHED, SimCluster, hand_over
from mainstem.testing.simulation.cluster.oversize import SimOversize
from mainstem.testing.simulation.cluster.releases import SimReleases
from mainstem.testing.simulation.faulty_files import FileFault

FAULTS: Final = (
    "full disks", "stalled disks", "failed syncs", "failed reads", "descriptor shortages",
    "clock jumps", "pauses", "slow links", "oversize messages",
    "mixed versions",
)  # fmt: skip
RARE: Final = ("failed syncs", "failed reads")  # often one replica less would be too few
FULL_S: Final = 15.0
STALL_S: Final = 30.0
STALLED_CHANCE: Final = 0.2  # of a disk to stall while another one does
HAND_OVER_S: Final = 0.01  # how long a hand-over usually takes
SYNCS_FAIL_S: Final = 10.0
SHORT_S: Final = 4.0
PAUSE_S: Final = 12.0
SLOW_S: Final = 2.0
CLOCK_JUMP_MS: Final = 2 * 3_600_000


class SimResourceFaults:
    """Injects faults of disks, clocks, processes and links.

    Args:
        cluster: the nodes.
        oversize: sends oversize messages.
        releases: replaces nodes by those of another release.
        note: called with every fault.
        wanted: names of the faults to inject.
    """

    def __init__(
        self,
        cluster: SimCluster,
        oversize: SimOversize,
        releases: SimReleases,
        note: Callable[[str], None],
        wanted: tuple[str, ...],
    ) -> None:
        self._cluster = cluster
        self._rng = cluster.rng
        self._note = note
        self._oversize = oversize
        acts = (
            self._fill_disks, self._stall, self._fail_syncs, self._fail_reads,
            self._use_up_descriptors, self._set_clock, self._pause, self._slow_down,
            oversize.send, releases.act,
        )  # fmt: skip
        named = dict(zip(FAULTS, acts, strict=True))
        self._acts = {name: named[name] for name in wanted}
        often = ("mixed versions",) if cluster.judge is not None else ()
        self._tickets = [
            name for name in self._acts for _ in range(3 if name in (*RARE, *often) else 1)
        ]
        self.counts = dict.fromkeys(FAULTS, 0)

    async def inject_faults(self, seconds: float) -> None:
        """Inject faults for that many seconds."""
        loop = self._cluster.loop
        until = loop.time() + seconds
        while self._acts and loop.time() < until:
            await asyncio.sleep(self._rng.random() * 4)
            name = self._rng.choice(self._tickets)
            self._note(name)
            self.counts[name] += self._acts[name]()
            self._cluster.check_fatal()
            self._oversize.check()

    def _fill_disks(self) -> int:
        """Fill one or two disks, or that of the catalogue's leader."""
        leader = self._cluster.catalogue_group.leader()
        nodes = self._rng.sample(list(self._cluster.nodes.values()), self._rng.choice((1, 1, 2)))
        if leader is not None and self._rng.random() < 0.3:
            nodes = [self._cluster.nodes[leader.id]]
        seconds = self._rng.random() * FULL_S
        for node in nodes:
            self._fail(node, FileFault.FULL, seconds)
        return len(nodes)

    def _stall(self) -> int:
        """Stall a disk; in half of the cases that of a writer which is handing over its stream."""
        loop, rng = self._cluster.loop, self._rng
        if loop.stalled and rng.random() > STALLED_CHANCE:
            return 0  # nothing is handed over while too few disks work
        node, seconds = rng.choice(list(self._cluster.nodes.values())), rng.random() ** 2 * STALL_S
        watched = [one for one in self._cluster.streams() if one.id in WATCHED]
        if watched and rng.random() < 0.5:
            writer = hand_over(self._cluster, rng.choice(watched))
            if writer is not None:
                loop.call_later(rng.random() * HAND_OVER_S, loop.stall, writer.id, seconds)
                return 1
        loop.stall(node.id, seconds)
        return 1

    def _fail_syncs(self) -> int:
        """Let syncs of a node fail; it exits at the first failure."""
        if not self._cluster.can_lose_one_node():
            return 0
        self._fail(self._rng.choice(self._cluster.up()), FileFault.SYNCS_FAIL, SYNCS_FAIL_S)
        return 1

    def _fail_reads(self) -> int:
        """Let reads fail, of a running node or of one that is starting and loads its files."""
        if not self._cluster.can_lose_one_node():
            return 0
        node = self._rng.choice(self._cluster.up())
        if self._rng.random() < 0.5:
            node.kill()
            self._cluster.start(node)
        self._fail(node, FileFault.READS_FAIL, self._rng.random() * SHORT_S)
        return 1

    def _use_up_descriptors(self) -> int:
        up = [node for node in self._cluster.up() if node.streams is not None]
        if not up:
            return 0
        seconds = self._rng.random() * SHORT_S
        self._fail(self._rng.choice(up), FileFault.NO_DESCRIPTORS, seconds)
        return 1

    def _set_clock(self) -> int:
        node = self._rng.choice(list(self._cluster.nodes.values()))
        node.clock.ahead_ms = self._rng.randint(-CLOCK_JUMP_MS, CLOCK_JUMP_MS)
        return 1

    def _pause(self) -> int:
        up = self._cluster.up()
        if not up:
            return 0
        self._rng.choice(up).process.pause(self._rng.random() ** 2 * PAUSE_S)
        return 1

    def _slow_down(self) -> int:
        """Slow down a link in one or both directions, by different delays."""
        source, target = self._rng.sample(list(self._cluster.nodes), 2)
        ways = [(source, target)]
        if self._rng.random() < 0.5:
            ways.append((target, source))
        for way in ways:
            by_s = self._rng.random() ** 2 * SLOW_S
            self._cluster.network.slow_down(*way, by_s)
            self._cluster.catalogue_group.slow[way] = by_s
        return len(ways)

    def _fail(self, node: SimNode, fault: FileFault, seconds: float) -> None:
        node.disk.begin(fault)
        life = node.incarnation

        def over() -> None:
            # A process started meanwhile has its own faults; only a full disk persists.
            if fault is FileFault.FULL or node.incarnation == life:
                node.disk.end(fault)

        self._cluster.loop.call_later(seconds, over)
