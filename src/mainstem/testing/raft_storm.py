"""A Raft group in bad weather: real drivers, crashes, power losses, partitions, lost messages.

Clients propose numbered values through whoever leads and read through anybody. What was answered
must be there at the end, in the same order everywhere, and a read must see what was answered before
it began. The tally's ``digest`` is the same whenever the seed is.
"""

import asyncio
import itertools
from hashlib import sha256
from pathlib import Path
from random import Random

import msgspec

from mainstem.cluster.raft.core import NotLeader
from mainstem.cluster.raft.doors_driver import DriverSettings
from mainstem.cluster.raft.driver import RaftDriver
from mainstem.cluster.raft.messages import (
    ConfChange,
    ConfChangeType,
    SoftState,
    StateType,
    founding,
)
from mainstem.model.errors import MainstemError
from mainstem.model.ids import NodeId
from mainstem.testing.raft_cluster import Node, RaftCluster, SimulatedLoop

CALM_S = 30.0


class Tally(msgspec.Struct):
    """What happened."""

    acknowledged: int = 0
    reads: int = 0
    crashes: int = 0
    power_losses: int = 0
    partitions: int = 0
    terms: int = 0
    messages: int = 0
    snapshots: int = 0
    changes: int = 0
    simulated_s: float = 0.0
    digest: str = ""


def storm(
    folder: Path,
    seed: int,
    *,
    seconds: float,
    nodes: int = 3,
    spare: int = 0,
    notice: float = 0.0,
) -> Tally:
    """Let it rage; raises when a promise is broken. Spare nodes come and go as members.

    Each node notices with a chance of ``notice`` that another one's process has ended, and now and
    then believes so of one that lives.
    """
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        story = _Storm(folder, seed, nodes, spare)
        story.notice = notice
        return runner.run(story.run(seconds))


class _Storm:
    def __init__(self, folder: Path, seed: int, nodes: int, spare: int) -> None:
        self._random = Random(seed)  # noqa: S311 - chance for a simulation, not for secrets
        self._noticing = Random(seed)  # noqa: S311 - so that who notices does not change the rest
        self.notice = 0.0
        settings = DriverSettings(
            snapshot_entries=60, keep_entries=10, proposal_timeout_s=5.0, chunk_timeout_s=0.3
        )
        self._cluster = RaftCluster(folder, self._random, loss=0.02, settings=settings)
        self._cluster.on_role = self._on_role
        self._founders = tuple(NodeId(number) for number in range(1, nodes + 1))
        self._spare = tuple(NodeId(nodes + number) for number in range(1, spare + 1))
        self._tally = Tally()
        self._answered: dict[bytes, int] = {}
        self._highest = 0  # the largest index that any client was told
        self._number = 0
        self._leaders: dict[int, NodeId] = {}
        self._over = False

    async def run(self, seconds: float) -> Tally:
        """The whole story."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        loop.job_delay_s = lambda: self._random.choice([0.0005, 0.002, 0.01, 0.2])
        for founder in self._founders:
            self._cluster.start(self._cluster.add(founder, founding(self._founders)))
        for node in self._spare:
            self._cluster.start(self._cluster.add(node))
        gardeners = [asyncio.ensure_future(self._gardener())] if self._spare else []
        clients = [asyncio.ensure_future(self._client()) for _ in range(4)]
        readers = [asyncio.ensure_future(self._reader()) for _ in range(2)]
        until_s = loop.time() + seconds
        while loop.time() < until_s:
            await asyncio.sleep(self._random.uniform(0.2, 3.0))
            await self._trouble()
        self._over = True
        await asyncio.gather(*clients, *readers, *gardeners)
        await self._calm()
        return await self._close()

    def _on_role(self, node: NodeId, role: SoftState) -> None:
        if role.state is StateType.StateLeader:
            known = self._leaders.setdefault(role.term, node)
            assert known == node, f"ELECTION SAFETY: {known} and {node} lead {role.term}"

    async def _trouble(self) -> None:
        up = [node for node in self._cluster.nodes.values() if node.driver is not None]
        down = [node for node in self._cluster.nodes.values() if node.driver is None]
        kind = self._random.random()
        if down and kind < 0.4:
            self._cluster.start(self._random.choice(down))
        elif kind < 0.6 and up:
            power_loss = self._random.random() < 0.5
            self._tally.crashes += 1
            self._tally.power_losses += power_loss
            victim = self._random.choice(up)
            self._cluster.kill(victim, power_loss=power_loss)
            self._tell_gone(victim.id)
        elif kind < 0.8:
            self._tally.partitions += 1
            self._cluster.isolate(self._random.choice(list(self._cluster.nodes.values())))
        elif kind < 0.9:
            self._cluster.loss = self._random.choice([0.0, 0.02, 0.2])
            self._tell_gone(self._noticing.choice(list(self._cluster.nodes)))
        else:
            self._cluster.heal()

    def _tell_gone(self, gone: NodeId) -> None:
        """Some of the others notice that a process has ended, or believe it has."""
        for node in self._cluster.nodes.values():
            if node.driver is not None and self._noticing.random() < self.notice:
                node.driver.unreachable(gone, gone=True)

    async def _client(self) -> None:
        while not self._over:
            await asyncio.sleep(self._random.uniform(0.0, 0.2))
            driver = self._someone()
            if driver is None:
                continue
            self._number += 1
            data = b"%d" % self._number
            try:
                index = await driver.propose(data)
            except MainstemError as refusal:
                if isinstance(refusal, NotLeader) and self._random.random() < 0.02:
                    driver.campaign()
                continue
            self._tally.acknowledged += 1
            self._answered[data] = index
            self._highest = max(self._highest, index)

    async def _reader(self) -> None:
        while not self._over:
            await asyncio.sleep(self._random.uniform(0.0, 0.4))
            node = self._random.choice(list(self._cluster.nodes.values()))
            if node.driver is None:
                continue
            before = self._highest
            try:
                index = await node.driver.read_barrier(2.0)
            except MainstemError:
                continue
            self._tally.reads += 1
            assert index >= before, f"STALE READ on {node.id}: {index} < {before}"

    async def _gardener(self) -> None:
        """Adds learners, promotes and removes them, and the founders too."""
        while not self._over:
            await asyncio.sleep(self._random.uniform(0.5, 6.0))
            leader = self._cluster.leader()
            if leader is None or leader.driver is None:
                continue
            node = self._random.choice([*self._founders, *self._spare])
            kind = self._random.choice(list(ConfChangeType))
            few = len(leader.members.voters) <= 2
            if few and kind is not ConfChangeType.ConfChangeAddNode:
                continue
            try:
                await leader.driver.change_membership(ConfChange(kind, node))
            except MainstemError:
                continue
            self._tally.changes += 1

    def _someone(self) -> RaftDriver | None:
        node = self._cluster.leader()
        if node is None or self._random.random() < 0.1:
            node = self._random.choice(list(self._cluster.nodes.values()))
        return node.driver

    async def _calm(self) -> None:
        """Everybody comes back and catches up."""
        self._cluster.heal()
        self._cluster.loss = 0.0
        for node in self._cluster.nodes.values():
            if node.driver is None:
                self._cluster.start(node)
        async with asyncio.timeout(CALM_S):
            leader, last = await self._last_word()
        belong = {*leader.members.voters, *leader.members.learners}
        machines = [self._cluster.nodes[node].machine for node in belong]
        await self._cluster.wait_until(
            lambda: all(machine.entries[-1:] == [last] for machine in machines), CALM_S
        )

    async def _last_word(self) -> tuple[Node, tuple[int, bytes]]:
        """Something that everybody must have in the end; a leader may just be handing over."""
        for attempt in itertools.count():
            leader = await self._cluster.wait_for_leader(CALM_S)
            assert leader.driver is not None, "it leads"
            data = b"calm %d" % attempt
            try:
                return leader, (await leader.driver.propose(data), data)
            except MainstemError:
                await asyncio.sleep(0.2)
        raise AssertionError("counting does not end")

    async def _close(self) -> Tally:
        self._cluster.check_agreement()
        entries = max((node.machine.entries for node in self._cluster.nodes.values()), key=len)
        kept = {data: index for index, data in entries}
        assert len(kept) == len(entries), "something was applied twice"
        lost = {data for data, index in self._answered.items() if kept.get(data) != index}
        assert not lost, f"LOST: {sorted(lost)[:5]}"
        fatal = [node.fatal for node in self._cluster.nodes.values() if node.fatal is not None]
        assert not fatal, f"a node stopped: {fatal}"
        statuses = [node.driver.status for node in self._cluster.nodes.values() if node.driver]
        tally = self._tally
        tally.terms = len(self._leaders)
        tally.messages = self._cluster.messages
        tally.snapshots = sum(status.snapshot_index > 1 for status in statuses)
        tally.simulated_s = round(asyncio.get_running_loop().time(), 6)
        story = msgspec.json.encode([entries, msgspec.to_builtins(tally)])
        tally.digest = sha256(story).hexdigest()
        await self._cluster.close()
        return tally
