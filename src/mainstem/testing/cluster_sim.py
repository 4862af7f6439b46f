"""Replicated streams in a hostile world: real drivers and files, virtual time, one seed per story.

    clients write and read ── nodes are killed, cut off, begun anew ── streams roll and move
                         at the end everything heals, and everything acknowledged is there

Nodes are ``StreamService`` with all its drivers, the coordinators of groups and transactions, a
member of the catalogue's Raft group, a lease and a placement leader's duties; what they see of the
catalogue comes late, and not at all while they are cut off. Promises that are checked: what was
acknowledged is read under its offset; an offset once read never changes; a producer's batch is
stored once, in its order; when all is well again every stream can be written and every sealed
range is whole on all its nodes. Those of transactions and groups: ``cluster_sim_transactions``.
"""

import asyncio
import shutil
import tempfile
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from mainstem.model.record import ProducerStamp
from mainstem.testing.cluster_sim_admin import SimAdmin, State, check_histories
from mainstem.testing.cluster_sim_clients import Metadata, Offended, SimClients, Trace
from mainstem.testing.cluster_sim_faults import SimFaults
from mainstem.testing.cluster_sim_storm import SimStorm
from mainstem.testing.cluster_sim_transactions import (
    CommittedReader,
    Fate,
    SimPositions,
    SimTransactions,
    patiently,
)
from mainstem.testing.cluster_sim_world import SimWorld
from mainstem.testing.faulty_files import FaultyFiles
from mainstem.testing.raft_cluster import SimulatedLoop

if TYPE_CHECKING:
    from mainstem.testing.linearizability import Done

CLIENTS = 3
ADMINS = 2
STORY_S = 60.0
_HEALED_S = 60.0


class ClusterSim:
    """One story."""

    def __init__(
        self, folder: Path, seed: int, files: FaultyFiles, *, policy: str = "fsync"
    ) -> None:
        self.trace = Trace()
        self.faults: tuple[str, ...] | None = None  # which happen; None: all
        self._files = files
        self._folder = folder
        self._rng = Random(seed)  # noqa: S311 - a story
        self._policy = policy
        self._world: SimWorld
        self._storm: SimStorm
        self.counts: dict[str, int] = {}

    async def run(self, seconds: float) -> None:
        """Live through the story; raises ``Offended``."""
        rng, note = self._rng, self.trace.note
        world = self._world = SimWorld(self._folder, rng, self._policy, self._files)
        self.clients = SimClients(
            rng, lambda: Metadata(world.stream.epoch, world.writer()), world.nearby, note
        )
        self.transactions = [
            SimTransactions(number, rng, world.find, note) for number in range(CLIENTS)
        ]
        self.positions = SimPositions(rng, world.find, note)
        self._committed = CommittedReader(rng, world.find, self.transactions)
        self._history: dict[str, list[Done[State]]] = {}
        self.admins = [SimAdmin(rng, world.serving, note, self._history) for _ in range(ADMINS)]
        self._storm = SimStorm(world, self.clients, note)
        await world.begin()
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self.clients.write_for_ever(number)) for number in range(CLIENTS)]
        tasks += [loop.create_task(self.clients.read_for_ever())]
        tasks += [loop.create_task(one.write_for_ever()) for one in self.transactions]
        tasks += [loop.create_task(self.positions.move_for_ever())]
        tasks += [loop.create_task(self._committed.read_for_ever())]
        tasks += [loop.create_task(one.change_for_ever()) for one in self.admins]
        self._faults = SimFaults(world, note, self.faults)
        await asyncio.gather(self._storm.rage(seconds), self._faults.rage(seconds))
        await world.heal()
        self.clients.is_done = self.positions.is_done = self._committed.is_done = True
        for one in self.transactions:
            one.is_done = True
        for admin in self.admins:
            admin.is_done = True
        await asyncio.gather(*tasks)
        await self._check_end()
        known = world.council.states()
        for node in world.nodes.values():
            node.kill()
        await asyncio.sleep(1)
        for member, (index, state) in known.items():
            if world.council.state_on_disk(member, index) not in (state, None):
                raise Offended(f"node {member} has another catalogue after a restart")

    async def _check_end(self) -> None:
        world = self._world
        self.clients.is_done = False
        async with asyncio.timeout(_HEALED_S):
            await self.clients.write([b"the end"], ProducerStamp(99, 0, 0))
            # Damage is told and mended in the first rounds; in the last there is none.
            while not world.is_whole() or not world.is_sound():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(1)
            for client in self.transactions:
                await client.finish()
            await patiently(self.positions.look)
            await patiently(self._committed.check_end)
            await self._check_catalogue()
        world.check_fatal()
        self._count()
        if world.stream.start > self._storm.trimmed:
            raise Offended(
                f"nobody deleted up to {world.stream.start}, only to {self._storm.trimmed}"
            )
        writer = world.writer()
        assert writer is not None, "it has just been written to"
        others = [node for node in world.nodes.values() if node is not writer]
        self.clients.check_all(world.stream.start, [writer, *others])

    async def _check_catalogue(self) -> None:
        """All nodes know the same, and it is what administrators were told."""
        world = self._world
        for subject in list(self._history):
            await self.admins[0].look(world.serving()[0], subject)
        self._undecided = check_histories(self._history)
        while len({index for index, _ in world.council.states().values()}) > 1:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        if len({state for _, state in world.council.states().values()}) != 1:
            raise Offended("nodes have different catalogues")

    def _count(self) -> None:
        stream = self._world.stream
        fates = [fate for one in self.transactions for fate in one.fates.values()]
        # A range that was rewritten again is of the next generation.
        rewritten = {
            each.id: sum(one.generation for one in each.ranges) for each in self._world.streams()
        }
        joins = rewritten.pop(stream.id)
        self.counts = {
            **self._storm.counts,
            **self._faults.counts,
            "exits": sum(node.exits for node in self._world.nodes.values()),
            "joins": joins,
            "compactions": sum(rewritten.values()),
            "commands": sum(one.known for one in self.admins),
            "unknown outcomes": sum(one.unknown for one in self.admins),
            "repeated commands": sum(one.repeated for one in self.admins),
            "undecided histories": self._undecided,
            "elections": stream.epoch,
            "seals": stream.last.index,
            "transactions": fates.count(Fate.COMMITTED),
            "positions": self.positions.reached,
        }


def tell(
    seed: int,
    seconds: float,
    *,
    policy: str = "fsync",
    faults: tuple[str, ...] | None = None,
) -> ClusterSim:
    """Live through the story of a seed; ``faults`` names those of ``FAULTS`` that happen."""
    # Files in memory: the disk's delays are virtual.
    shared = Path("/dev/shm")  # noqa: S108 - a folder of its own is made in it
    folder = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else None))
    files = FaultyFiles()
    sim = ClusterSim(folder, seed, files, policy=policy)
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
