"""Replicated streams under faults: real drivers and files, virtual time, one seed per scenario.

    clients write and read ── nodes are killed, isolated, restarted ── streams roll and move
       all faults end, clients are served as before, and everything acknowledged is stored

Nodes are ``StreamService`` with all its drivers, the coordinators of groups and transactions, a
member of the catalogue's Raft group, a lease and the tasks of a placement leader; updates of the
catalogue arrive late, and not at all while a node is isolated. Checked guarantees: acknowledged
records are read at their offsets; an offset once read never changes; a producer's batch is stored
once, in order; after the faults every stream can be written and every sealed range is complete on
all its nodes. Those of transactions and groups are in ``transactions``.
"""

import asyncio
import shutil
import tempfile
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from mainstem.model.records.record import ProducerStamp
from mainstem.testing.simulation.cluster.admins import SimAdmin, State, check_command_histories
from mainstem.testing.simulation.cluster.clients import (
    GuaranteeViolated,
    SimClients,
    Trace,
    WriterMetadata,
)
from mainstem.testing.simulation.cluster.end_offsets import SimEndOffsets
from mainstem.testing.simulation.cluster.node_faults import SimNodeFaults
from mainstem.testing.simulation.cluster.nodes import SimCluster
from mainstem.testing.simulation.cluster.oversize import SimOversize
from mainstem.testing.simulation.cluster.releases import SimReleases
from mainstem.testing.simulation.cluster.resource_faults import FAULTS, SimResourceFaults
from mainstem.testing.simulation.cluster.transactions import (
    CommittedReader,
    SimGroupOffsets,
    SimTransactions,
    TransactionOutcome,
    retry_until_settled,
)
from mainstem.testing.simulation.faulty_files import FaultyFiles
from mainstem.testing.simulation.raft.group import SimulatedLoop

if TYPE_CHECKING:
    from mainstem.testing.simulation.linearizability import TimedCommand

CLIENTS = 3
ADMINS = 2
SCENARIO_S = 120.0
MIXED_CHANCE = 0.25  # of a scenario with all faults to have nodes of two releases
STABLE_S = 5.0
# Minimum of acknowledgements without faults: a third of the usual number.
STABLE_ACKNOWLEDGED = 100
STABLE_TRANSACTIONS = 10
_HEALED_S = 60.0


class ClusterSimulator:
    """Runs one simulated scenario."""

    def __init__(
        self, folder: Path, seed: int, files: FaultyFiles, *, policy: str = "fsync"
    ) -> None:
        self.trace = Trace()
        self.faults: tuple[str, ...] = FAULTS  # the faults that are injected
        self._files = files
        self._folder = folder
        self._rng = Random(seed)  # noqa: S311 - a scenario
        self._policy = policy
        self._cluster: SimCluster
        self._node_faults: SimNodeFaults
        self.counts: dict[str, int] = {}

    async def run(self, seconds: float) -> None:
        """Run the scenario; raises ``GuaranteeViolated``."""
        rng, note = self._rng, self.trace.note
        is_oversize = "oversize messages" in self.faults
        is_mixed = "mixed versions" in self.faults
        is_mixed = is_mixed and (len(self.faults) == 1 or rng.random() < MIXED_CHANCE)
        cluster = self._cluster = SimCluster(
            self._folder,
            rng,
            self._policy,
            self._files,
            is_oversize=is_oversize,
            is_mixed=is_mixed,
        )
        self.clients = SimClients(
            rng,
            lambda: WriterMetadata(cluster.stream.epoch, cluster.writer()),
            cluster.nearby,
            note,
        )
        self.transactions = [
            SimTransactions(number, rng, cluster.find, note) for number in range(CLIENTS)
        ]
        self.positions = SimGroupOffsets(rng, cluster.find, note)
        self._committed = CommittedReader(rng, cluster.find, self.transactions)
        self._history: dict[str, list[TimedCommand[State]]] = {}
        self.admins = [SimAdmin(rng, cluster.serving, note, self._history) for _ in range(ADMINS)]
        self._node_faults = SimNodeFaults(cluster, self.clients, note)
        await cluster.begin()
        loop = asyncio.get_running_loop()
        tasks = [
            loop.create_task(self.clients.write_until_done(number)) for number in range(CLIENTS)
        ]
        tasks += [loop.create_task(self.clients.read_until_done())]
        ends = SimEndOffsets(self.clients, cluster.writer)
        tasks += [loop.create_task(ends.ask_until_done())]
        tasks += [loop.create_task(one.write_until_done()) for one in self.transactions]
        tasks += [loop.create_task(self.positions.commit_until_done())]
        tasks += [loop.create_task(self._committed.read_until_done())]
        tasks += [loop.create_task(one.change_until_done()) for one in self.admins]
        self._oversize = SimOversize(cluster, self.clients, note)
        self._faults = SimResourceFaults(
            cluster, self._oversize, SimReleases(cluster, note), note, self.faults
        )
        await asyncio.gather(
            self._node_faults.inject_faults(seconds), self._faults.inject_faults(seconds)
        )
        await cluster.heal()
        await self._stabilise()
        self.clients.is_done = self.positions.is_done = self._committed.is_done = True
        for one in self.transactions:
            one.is_done = True
        for admin in self.admins:
            admin.is_done = True
        await asyncio.gather(*tasks)
        await self._oversize.finish()
        await self._check_end()
        known = cluster.catalogue_group.states()
        for node in cluster.nodes.values():
            node.kill()
        await asyncio.sleep(1)
        for member, (index, state) in known.items():
            if cluster.catalogue_group.state_on_disk(member, index) not in (state, None):
                raise GuaranteeViolated(f"node {member} has another catalogue after a restart")

    async def _stabilise(self) -> None:
        """Check that clients are served again after all faults have ended."""
        before = len(self.clients.acked), self._committed_count()
        await asyncio.sleep(STABLE_S)
        self._cluster.check_fatal()  # its error is more specific than what clients see
        acknowledged = len(self.clients.acked) - before[0]
        transactions = self._committed_count() - before[1]
        if acknowledged < STABLE_ACKNOWLEDGED or transactions < STABLE_TRANSACTIONS:
            raise GuaranteeViolated(
                f"{STABLE_S} s without a fault saw {acknowledged} records acknowledged and "
                f"{transactions} transactions"
            )

    def _committed_count(self) -> int:
        outcomes = (status for one in self.transactions for status in one.outcomes.values())
        return sum(status is TransactionOutcome.COMMITTED for status in outcomes)

    async def _check_end(self) -> None:
        cluster = self._cluster
        self.clients.is_done = False
        async with asyncio.timeout(_HEALED_S):
            await self.clients.write([b"the end"], ProducerStamp(99, 0, 0))
            # Damage is reported and repaired in the first rounds; in the last there is none.
            while not cluster.is_whole() or not cluster.is_sound():  # noqa: ASYNC110 - no event
                await asyncio.sleep(1)
            for client in self.transactions:
                await client.finish()
            await retry_until_settled(self.positions.look)
            await retry_until_settled(self._committed.check_end)
            await self._check_catalogue()
        cluster.check_fatal()
        self._count()
        if cluster.stream.start > self._node_faults.trimmed:
            raise GuaranteeViolated(
                f"start {cluster.stream.start} is beyond the trimmed {self._node_faults.trimmed}"
            )
        writer = cluster.writer()
        assert writer is not None, "it has just been written to"
        others = [node for node in cluster.nodes.values() if node is not writer]
        self.clients.check_all(cluster.stream.start, [writer, *others])

    async def _check_catalogue(self) -> None:
        """Check that all nodes have the same catalogue, consistent with administrators' answers."""
        cluster = self._cluster
        for subject in list(self._history):
            await self.admins[0].look(cluster.serving()[0], subject)
        self._undecided = check_command_histories(self._history)
        while len({index for index, _ in cluster.catalogue_group.states().values()}) > 1:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        if len({state for _, state in cluster.catalogue_group.states().values()}) != 1:
            raise GuaranteeViolated("nodes have different catalogues")
        if ignored := cluster.catalogue_group.ignored():
            raise GuaranteeViolated(f"facts were decided on another state: {ignored}")

    def _count(self) -> None:
        stream = self._cluster.stream
        # Every rewrite of a range increments its generation.
        rewritten = {
            each.id: sum(one.generation for one in each.ranges) for each in self._cluster.streams()
        }
        joins = rewritten.pop(stream.id)
        judge = self._cluster.judge
        self.counts = {
            **self._node_faults.counts,
            **self._faults.counts,
            "exits": sum(node.exits for node in self._cluster.nodes.values()),
            "refused starts": sum(node.refusals for node in self._cluster.nodes.values()),
            "raised levels": int(judge is not None and judge.level > 1),
            "joins": joins,
            "compactions": sum(rewritten.values()),
            "commands": sum(one.known for one in self.admins),
            "unknown outcomes": sum(one.unknown for one in self.admins),
            "repeated commands": sum(one.repeated for one in self.admins),
            "undecided histories": self._undecided,
            "elections": stream.epoch,
            "seals": stream.last.index,
            "transactions": self._committed_count(),
            "positions": self.positions.reached,
        }


def run_seed(
    seed: int,
    seconds: float,
    *,
    policy: str = "fsync",
    faults: tuple[str, ...] = FAULTS,
) -> ClusterSimulator:
    """Run the scenario of a seed; ``faults`` selects from ``FAULTS``."""
    # Files are in memory: delays of the disk are virtual.
    shared = Path("/dev/shm")  # noqa: S108 - a folder of its own is made in it
    folder = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else None))
    files = FaultyFiles()
    sim = ClusterSimulator(folder, seed, files, policy=policy)
    sim.faults = faults
    try:
        with files, asyncio.Runner(loop_factory=SimulatedLoop) as runner:
            runner.run(sim.run(seconds))
    except BaseException as error:
        error.add_note(f"seed {seed}, {seconds} s, flush.policy={policy}")
        raise
    finally:
        shutil.rmtree(folder)
    return sim
