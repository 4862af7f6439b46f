"""A Raft group under faults: real drivers, crashes, power losses, partitions, lost messages.

Disks stall for seconds, are full for some time, or fail to sync, which ends a node; data that the
kernel could not write is then lost. Other faults are in ``machine_faults``.

Clients propose numbered values through the leader and read through any node; they repeat some
proposals whose outcome they do not know, and propose entries that are too large. Acknowledged
values must be stored at the end, in the same order on all nodes, after everything that was
acknowledged before they were proposed; what was refused is not stored, and nothing is stored more
often than it was proposed. A read must see what was acknowledged before it started. When faults
have ended, a node that receives nothing deposes no leader, and a leader that receives nothing is
replaced. The same seed gives the same ``digest`` of the tally.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Coroutine
from functools import partial
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar

import msgspec
from tests.kit.simulation.raft.machine_faults import MACHINE_FAULTS, RaftMachineFaults

from mainstem.cluster.raft.core import NotLeader
from mainstem.cluster.raft.drivers.interfaces_driver import DriverSettings
from mainstem.cluster.raft.drivers.pending_driver import EntryTooLarge
from mainstem.cluster.raft.messages import (
    ConfChange,
    ConfChangeType,
    SoftState,
    StateType,
    initial_state,
)
from mainstem.model.errors import MainstemError
from mainstem.model.ids import NodeId
from mainstem.testing.simulation.faulty_files import FaultyFiles, FileFault
from mainstem.testing.simulation.raft.group import Node, RaftCluster, SimulatedLoop
from mainstem.testing.simulation.virtual_loop import PROCESS

RAFT_FAULTS: Final = (
    "crashes", "partitions", "lost messages", "stalled disks", "full disks", "failed syncs",
    *MACHINE_FAULTS, "oversize entries", "retried proposals", "mixed versions",
)  # fmt: skip
DISK_FAULTS: Final = ("stalled disks", "full disks", "failed syncs")
STABLE_S = 30.0
DISK_CHANCE = 0.2
ENTRY_BYTES_MAX = 1_000
OVERSIZE_CHANCE = 0.03
RETRY_CHANCE = 0.5
MIXED_CHANCE = 0.3
DEAF_S = 4.0
CALM_S = 3.0
REPLACED_S = 10.0
UNANSWERED_S = 30.0

T = TypeVar("T")
STALL_S = 10.0
SHORT_STALL_S = 0.5
FULL_S = 10.0


class FaultRunCounts(msgspec.Struct):
    """Counts of what happened in a run."""

    acknowledged: int = 0
    reads: int = 0
    crashes: int = 0
    power_losses: int = 0
    partitions: int = 0
    stalls: int = 0
    full_disks: int = 0
    failed_syncs: int = 0
    failed_reads: int = 0
    descriptor_shortages: int = 0
    slow_links: int = 0
    one_way_cuts: int = 0
    pauses: int = 0
    clock_jumps: int = 0
    refused_starts: int = 0
    oversize: int = 0
    unknown: int = 0
    retried: int = 0
    releases: int = 0
    terms: int = 0
    messages: int = 0
    snapshots: int = 0
    changes: int = 0
    simulated_s: float = 0.0
    digest: str = ""


def run_with_faults(
    folder: Path,
    seed: int,
    *,
    seconds: float,
    nodes: int = 3,
    spare: int = 0,
    notice: float = 0.0,
    faults: tuple[str, ...] = RAFT_FAULTS,
) -> FaultRunCounts:
    """Run a group under faults; raises when a guarantee is violated. Spare nodes join and leave.

    ``faults`` selects from ``RAFT_FAULTS``. Each node gets, with the probability ``notice``, a
    report that another one's process has ended; some of the reports are false.
    """
    files = FaultyFiles()
    with files, asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        run = _FaultRun(folder, seed, (nodes, spare), files, faults)
        run.notice = notice
        return runner.run(run.run(seconds))


class _MixedCluster(RaftCluster):
    """A group in which some nodes are of a later release, whose messages have one more field."""

    later: frozenset[NodeId] = frozenset()

    def carry(self, from_: NodeId, to: NodeId, data: bytes) -> None:
        """Send a message as the release of its sender does."""
        if from_ in self.later:
            data = msgspec.msgpack.encode([*msgspec.msgpack.decode(data), "of a later release"])
        super().carry(from_, to, data)


class _FaultRun:
    def __init__(
        self,
        folder: Path,
        seed: int,
        size: tuple[int, int],
        files: FaultyFiles,
        faults: tuple[str, ...],
    ) -> None:
        nodes, spare = size
        self._faults = faults
        self._files = files
        self._random = Random(seed)
        self._noticing = Random(seed)
        self.notice = 0.0
        settings = DriverSettings(
            snapshot_entries=60,
            keep_entries=10,
            proposal_timeout_s=5.0,
            chunk_timeout_s=0.3,
            entry_bytes_max=ENTRY_BYTES_MAX,
        )
        loss = 0.02 if "lost messages" in faults else 0.0
        self._cluster = _MixedCluster(folder, self._random, loss=loss, settings=settings)
        self._is_mixed = "mixed versions" in faults and self._random.random() < MIXED_CHANCE
        self._machines: RaftMachineFaults
        self._cluster.on_role = self._on_role
        self._first_voters = tuple(NodeId(number) for number in range(1, nodes + 1))
        self._spare = tuple(NodeId(nodes + number) for number in range(1, spare + 1))
        self._tally = FaultRunCounts()
        self._answered: list[tuple[bytes, int]] = []
        self._proposed: Counter[bytes] = Counter()  # how often each value may be stored
        self._highest = 0  # the largest index that was acknowledged to a client
        self._number = 0
        self._leaders: dict[int, NodeId] = {}
        self._over = False
        self._fatal: list[BaseException] = []
        self._loop: SimulatedLoop

    async def run(self, seconds: float) -> FaultRunCounts:
        """Run the whole scenario."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        self._loop = loop
        self._machines = RaftMachineFaults(self._cluster, self._random, self._files, self._faults)
        loop.job_delay_s = lambda: self._random.choice([0.0005, 0.002, 0.01, 0.2])
        for founder in self._first_voters:
            self._begin(self._cluster.add(founder, initial_state(self._first_voters)))
        for node in self._spare:
            self._begin(self._cluster.add(node))
        change_tasks = [asyncio.ensure_future(self._change_members())] if self._spare else []
        clients = [asyncio.ensure_future(self._client()) for _ in range(4)]
        readers = [asyncio.ensure_future(self._reader()) for _ in range(2)]
        until_s = loop.time() + seconds
        more_faults = asyncio.ensure_future(self._machines.inject_until(until_s))
        while loop.time() < until_s:
            await asyncio.sleep(self._random.uniform(0.2, 3.0))
            self._inject_faults()
        await more_faults
        self._over = True
        running = [*clients, *readers, *change_tasks]
        _, unanswered = await asyncio.wait(running, timeout=UNANSWERED_S)
        assert not unanswered, f"{len(unanswered)} requests were never answered"
        await asyncio.gather(*running)
        await self._stabilise()
        if "one-way cuts" in self._faults:
            await self._check_one_way_cuts()
        return await self._close()

    def _begin(self, node: Node) -> None:
        """Start a node as a process of its own, so that its disk can stall."""
        node.context.run(PROCESS.set, node.id)
        node.on_fatal = partial(self._failed, node)
        if self._is_mixed and self._random.random() < 0.5:
            self._cluster.later ^= {node.id}
            self._tally.releases += 1
        try:
            node.context.run(self._cluster.start, node)
        except (OSError, MainstemError):
            if not self._machines.has(node, FileFault.READS_FAIL, FileFault.NO_DESCRIPTORS):
                raise
            self._tally.refused_starts += 1
            node.storage.close_now()

    def _failed(self, node: Node, error: BaseException) -> None:
        """Handle a fatal error: only a failed sync or read may end a node."""
        may_exit = node.disk.has_failed or node in self._machines.may_exit
        if not may_exit or node.driver is None:
            self._fatal.append(error)
            return
        self._loop.call_soon(self._end, node, node.lives)

    def _end(self, node: Node, life: int) -> None:
        if node.driver is not None and node.lives == life:
            self._kill(node, power_loss=False)

    def _kill(self, node: Node, *, power_loss: bool) -> None:
        """End a process; data that the kernel could not write is lost."""
        self._machines.process_ended(node)
        is_lost = power_loss or node.disk.has_failed
        node.disk.broken = node.disk.has_failed = False
        self._cluster.kill(node, power_loss=is_lost)

    def _damage_disk(self) -> None:
        """Let the disk of a node stall, be full, or fail."""
        node = self._random.choice(list(self._cluster.nodes.values()))
        kind = self._random.random()
        name = DISK_FAULTS[(kind >= 0.5) + (kind >= 0.8)]
        if name not in self._faults:
            return
        if kind < 0.3:
            self._tally.stalls += 1
            self._loop.stall(node.id, self._random.random() ** 2 * STALL_S)
        elif kind < 0.5:
            self._tally.stalls += 1
            for each in self._cluster.nodes:
                self._loop.stall(each, SHORT_STALL_S)
            self._loop.call_later(self._random.random() * SHORT_STALL_S, self._lose_all_power)
        elif kind < 0.8:
            self._tally.full_disks += 1
            self._files.begin(node.folder, FileFault.FULL)
            self._loop.call_later(
                self._random.random() * FULL_S, self._files.end, node.folder, FileFault.FULL
            )
        elif node.driver is not None:
            self._tally.failed_syncs += 1
            node.disk.broken = True

    def _lose_all_power(self) -> None:
        """Let all machines lose power while their disks stall: only synced data stays."""
        for node in self._cluster.nodes.values():
            if node.driver is not None and not self._over:
                self._tally.power_losses += 1
                self._kill(node, power_loss=True)
                self._loop.call_later(1.0, self._begin_again, node)

    def _begin_again(self, node: Node) -> None:
        if node.driver is None:
            self._begin(node)

    def _on_role(self, node: NodeId, role: SoftState) -> None:
        if role.state is StateType.StateLeader:
            known = self._leaders.setdefault(role.term, node)
            assert known == node, f"ELECTION SAFETY: {known} and {node} lead {role.term}"

    def _inject_faults(self) -> None:
        up = [node for node in self._cluster.nodes.values() if node.driver is not None]
        down = [node for node in self._cluster.nodes.values() if node.driver is None]
        kind = self._random.random()
        if self._random.random() < DISK_CHANCE:
            self._damage_disk()
        elif down and kind < 0.4:
            self._begin(self._random.choice(down))
        elif kind < 0.6 and up and "crashes" in self._faults:
            power_loss = self._random.random() < 0.5
            self._tally.crashes += 1
            self._tally.power_losses += power_loss
            victim = self._random.choice(up)
            self._kill(victim, power_loss=power_loss)
            self._report_gone(victim.id)
        elif kind < 0.8 and "partitions" in self._faults:
            self._tally.partitions += 1
            self._cluster.isolate(self._random.choice(list(self._cluster.nodes.values())))
        elif kind < 0.9 and "lost messages" in self._faults:
            self._cluster.loss = self._random.choice([0.0, 0.02, 0.2])
            self._report_gone(self._noticing.choice(list(self._cluster.nodes)))
        else:
            self._cluster.heal()

    def _report_gone(self, gone: NodeId) -> None:
        """Report to some of the others that a process has ended, true or false."""
        for node in self._cluster.nodes.values():
            if node.driver is not None and self._noticing.random() < self.notice:
                node.driver.unreachable(gone, gone=True)

    async def _client(self) -> None:
        while not self._over:
            await asyncio.sleep(self._random.uniform(0.0, 0.2))
            self._number += 1
            data = b"%d" % self._number
            if "oversize entries" in self._faults and self._random.random() < OVERSIZE_CHANCE:
                data = data.ljust(ENTRY_BYTES_MAX + self._random.randint(0, 1))
            is_known = await self._propose(data)
            while not is_known and "retried proposals" in self._faults and not self._over:
                if self._random.random() > RETRY_CHANCE:
                    break
                await asyncio.sleep(self._random.uniform(0.0, 1.0))
                self._tally.retried += 1
                is_known = await self._propose(data)

    async def _propose(self, data: bytes) -> bool:
        """Propose a value; False if it may or may not be stored."""
        node = self._someone()
        if node is None or node.driver is None:
            return True
        driver, before = node.driver, self._highest
        self._proposed[data] += 1
        try:
            index = await _ask(node, driver.propose(data))
        except (NotLeader, EntryTooLarge) as refusal:
            self._proposed[data] -= 1
            self._tally.oversize += isinstance(refusal, EntryTooLarge)
            if isinstance(refusal, NotLeader) and self._random.random() < 0.02:
                driver.campaign()
            return True
        except MainstemError:
            self._tally.unknown += 1
            return False
        assert len(data) <= ENTRY_BYTES_MAX, f"an entry of {len(data)} bytes is stored"
        assert index > before, f"REORDERED: {data[:9]!r} is at {index}, not after {before}"
        self._tally.acknowledged += 1
        self._answered.append((data, index))
        self._highest = max(self._highest, index)
        return True

    async def _reader(self) -> None:
        while not self._over:
            await asyncio.sleep(self._random.uniform(0.0, 0.4))
            node = self._random.choice(list(self._cluster.nodes.values()))
            if node.driver is None:
                continue
            before = self._highest
            try:
                index = await _ask(node, node.driver.read_barrier(2.0))
            except MainstemError:
                continue
            self._tally.reads += 1
            assert index >= before, f"STALE READ on {node.id}: {index} < {before}"

    async def _change_members(self) -> None:
        """Add learners, promote and remove them, and the initial voters too."""
        while not self._over:
            await asyncio.sleep(self._random.uniform(0.5, 6.0))
            leader = self._cluster.leader()
            if leader is None or leader.driver is None:
                continue
            node = self._random.choice([*self._first_voters, *self._spare])
            kind = self._random.choice(list(ConfChangeType))
            few = len(leader.members.voters) <= 2
            if few and kind is not ConfChangeType.ConfChangeAddNode:
                continue
            try:
                await leader.driver.change_membership(ConfChange(kind, node))
            except MainstemError:
                continue
            self._tally.changes += 1

    def _someone(self) -> Node | None:
        node = self._cluster.leader()
        if node is None or self._random.random() < 0.1:
            node = self._random.choice(list(self._cluster.nodes.values()))
        return node

    async def _stabilise(self) -> None:
        """End all faults and wait until all members have caught up."""
        self._cluster.heal()
        self._cluster.loss = 0.0
        self._loop.end_stalls()
        self._machines.end()
        await asyncio.sleep(0.5)  # a node whose disk has just failed ends
        for node in self._cluster.nodes.values():
            node.disk.broken = False
            if node.driver is None:
                self._begin(node)
        async with asyncio.timeout(STABLE_S):
            leader, last = await self._last_word()
        belong = {*leader.members.voters, *leader.members.learners}
        machines = [self._cluster.nodes[node].machine for node in belong]
        await self._cluster.wait_until(
            lambda: all(machine.entries[-1:] == [last] for machine in machines), STABLE_S
        )

    async def _check_one_way_cuts(self) -> None:
        """Check, without other faults, what happens to nodes that receive nothing."""
        await asyncio.sleep(CALM_S)
        leader = await self._cluster.wait_for_leader(STABLE_S)
        assert leader.driver is not None, "it leads"
        voters, term = leader.members.voters, leader.driver.state.term
        if len(voters) < 3 or leader.id not in voters:
            return
        deaf = self._random.choice([node for node in voters if node != leader.id])
        self._cluster.deafen(self._cluster.nodes[deaf])
        await asyncio.sleep(DEAF_S)
        self._cluster.heal()
        await asyncio.sleep(CALM_S)
        now = self._cluster.leader()
        is_same = now is leader and leader.driver is not None and leader.driver.state.term == term
        assert is_same, f"node {deaf}, which received nothing, has deposed the leader of {term}"
        self._cluster.deafen(leader)
        await self._cluster.wait_until(
            lambda: self._cluster.leader() not in (None, leader), REPLACED_S
        )
        self._cluster.heal()
        await self._stabilise()

    async def _last_word(self) -> tuple[Node, tuple[int, bytes]]:
        """Commit a last value that all members must have; retries while leadership moves."""
        for attempt in itertools.count():
            leader = await self._cluster.wait_for_leader(STABLE_S)
            assert leader.driver is not None, "it leads"
            data = b"calm %d %d" % (attempt, self._highest)
            try:
                return leader, (await leader.driver.propose(data), data)
            except MainstemError:
                await asyncio.sleep(0.2)
        raise AssertionError("counting does not end")

    async def _close(self) -> FaultRunCounts:
        self._cluster.check_agreement()
        entries = max((node.machine.entries for node in self._cluster.nodes.values()), key=len)
        kept = dict(entries)
        stored = Counter(data for data in kept.values() if not data.startswith(b"calm"))
        extra = {data for data, count in stored.items() if count > self._proposed[data]}
        assert not extra, f"stored, but refused or proposed less often: {sorted(extra)[:5]}"
        lost = {data for data, index in self._answered if kept.get(index) != data}
        assert not lost, f"LOST: {sorted(lost)[:5]}"
        assert not self._fatal, f"a node stopped: {self._fatal}"
        statuses = [node.driver.status for node in self._cluster.nodes.values() if node.driver]
        tally = self._tally
        for name in MACHINE_FAULTS:
            setattr(tally, name.replace(" ", "_").replace("-", "_"), self._machines.counts[name])
        tally.terms = len(self._leaders)
        tally.messages = self._cluster.messages
        tally.snapshots = sum(status.snapshot_index > 1 for status in statuses)
        tally.simulated_s = round(asyncio.get_running_loop().time(), 6)
        run = msgspec.json.encode([entries, msgspec.to_builtins(tally)])
        tally.digest = sha256(run).hexdigest()
        await self._cluster.close()
        return tally


async def _ask(node: Node, request: Coroutine[Any, Any, T]) -> T:
    """Run a request in the process of a node: a paused one serves it later."""
    return await asyncio.get_running_loop().create_task(request, context=node.context)
