"""Replicated streams in a hostile world: real drivers and files, virtual time, one seed per story.

    clients write and read ── nodes are killed, cut off, begun anew ── streams roll and move
                         at the end everything heals, and everything acknowledged is there

Nodes are ``StreamService`` with all its drivers, a member of the catalogue's Raft group, a lease
and a placement leader's duties; what they see of the catalogue comes late, and not at all while
they are cut off. Promises that are checked: what was acknowledged is read under its offset; an
offset once read never changes; a producer's batch is stored once, in its order; when all is well
again every stream can be written and every sealed range is whole on all its nodes.
"""

import asyncio
import shutil
import tempfile
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from mainstem.model.ids import NodeId, PartitionIndex, StreamId, TopicId
from mainstem.model.metadata import Stream
from mainstem.model.record import ProducerStamp
from mainstem.placement.leases import NORMAL
from mainstem.placement.records import CreateTopic
from mainstem.testing.cluster_sim_clients import Metadata, Offended, SimClients, Trace
from mainstem.testing.cluster_sim_council import SimCouncil
from mainstem.testing.cluster_sim_node import SimNode, rot
from mainstem.testing.peer_network import PeerNetwork
from mainstem.testing.raft_cluster import SimulatedLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

NODES = 3
CLIENTS = 3
TOPIC = TopicId(b"simulated topic.")
STREAM = StreamId(TOPIC, PartitionIndex(0))
STORY_S = 60.0
_HEALED_S = 60.0


class ClusterSim:
    """One story."""

    def __init__(self, folder: Path, seed: int, *, policy: str = "fsync") -> None:
        self.rng = Random(seed)  # noqa: S311 - a story
        self.trace = Trace()
        self.clients = SimClients(
            self.rng,
            lambda: Metadata(self.stream.epoch, self._writer()),
            self._nearby,
            self.trace.note,
        )
        self.counts = {
            "kills": 0,
            "power losses": 0,
            "cuts": 0,
            "rotten bits": 0,
            "rolls": 0,
            "moves": 0,
            "trims": 0,
            "joins": 0,
            "elections": 0,
            "seals": 0,
        }
        self._trimmed = 0
        self._is_open_rotten = False
        self._policy = policy
        self._folder = folder
        self._known: Stream
        self._fatal: list[BaseException] = []

    async def run(self, seconds: float) -> None:
        """Live through the story; raises ``Offended``."""
        self.network = PeerNetwork(delay_s=0.005, rng=self.rng)
        members = tuple(NodeId(number) for number in range(1, NODES + 1))
        self.council = SimCouncil(self._folder, self.rng, members)
        self.nodes = {
            member: SimNode(
                member, self._folder / f"streams-{member}", self.council, self.network, self.rng
            )
            for member in members
        }
        await asyncio.gather(*(node.begin() for node in self.nodes.values()))
        configs = {"flush.policy": self._policy, "segment.bytes": "1048576"}
        topic = await self.council.service.submit(CreateTopic(TOPIC, "t", 1, NODES, configs))
        self._known = topic.streams[0]
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self.clients.write_for_ever(number)) for number in range(CLIENTS)]
        tasks += [loop.create_task(self.clients.read_for_ever())]
        await self._storm(seconds)
        await self._heal()
        self.clients.is_done = True
        await asyncio.gather(*tasks)
        await self._check_end()
        for node in self.nodes.values():
            node.kill()
        await asyncio.sleep(1)

    @property
    def stream(self) -> Stream:
        """The stream as it is decided."""
        found = self.council.service.catalogue.stream(STREAM)
        if found is not None:  # a node that has just begun may know nothing yet
            self._known = found
        return self._known

    # The hostile world.

    async def _storm(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        acts: list[Callable[[], None]] = [
            self._kill, self._kill, self._begin, self._begin, self._cut_off, self._mend,
            self._mend, self._cut_one_way, self._roll, self._move, self._rot,
            self._trim, self._join, self._rot_open,
        ]  # fmt: skip
        while loop.time() < until:
            await asyncio.sleep(self.rng.random() * 2)
            act = self.rng.choice(acts)
            self.trace.note(act.__name__)
            act()
            self._check_fatal()

    def _kill(self) -> None:
        up = [node for node in self.nodes.values() if node.is_up]
        if len(up) > 1:
            # Two power losses before anybody is whole again are more than two copies can bear.
            power = self._is_sound(up) and not self._is_open_rotten and self.rng.random() < 0.5
            self.rng.choice(up).kill(power=power)
            self.counts["power losses" if power else "kills"] += 1

    def _begin(self) -> None:
        down = [node for node in self.nodes.values() if not node.is_up]
        if down:
            self._start(self.rng.choice(down))

    def _start(self, node: SimNode) -> None:
        def begun(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                self._fatal.append(error)

        node.begin().add_done_callback(begun)

    def _rot(self) -> None:
        """A bit of a dead node's copy turns over, where all others are sound."""
        down = [node for node in self.nodes.values() if not node.is_up]
        if len(down) == 1 and not self.counts["rotten bits"]:
            everybody = set(self.nodes)
            whole: set[int] = {
                one.index for one in self.stream.ranges if set(one.holders) == everybody
            }
            self.counts["rotten bits"] += rot(down[0].folder, whole, self.rng)

    def _rot_open(self) -> None:
        """A node is killed, and its disk loses some of the open range that it had synced."""
        up = [node for node in self.nodes.values() if node.is_up]
        if self._is_sound(up) and not self.counts["rotten bits"]:
            self._is_open_rotten = self.rng.choice(up).kill_and_rot()
            self.counts["rotten bits"] += self._is_open_rotten
            self.counts["kills"] += 1

    def _is_sound(self, up: list[SimNode]) -> bool:
        """Whether every copy is there and whole: one may be lost."""
        return len(up) == NODES and is_whole(self.stream, set(self.nodes))

    def _cut_off(self) -> None:
        node = self.rng.choice(list(self.nodes.values()))
        self.network.isolate(node.id)
        self.council.isolate(self.council.nodes[node.id])
        self.counts["cuts"] += 1

    def _cut_one_way(self) -> None:
        source, target = self.rng.sample(list(self.nodes), 2)
        self.network.cut(source, target)
        self.council.cut.add((source, target))
        self.counts["cuts"] += 1

    def _mend(self) -> None:
        self.network.heal()
        self.council.heal()

    def _roll(self) -> None:
        writer = self._writer()
        if writer is not None and writer.streams is not None:
            writer.streams.roll(STREAM)
            self.counts["rolls"] += 1

    def _move(self) -> None:
        writer = self._writer()
        others = [node for node in self.stream.last.replicas if node != self.stream.writer]
        if writer is not None and writer.streams is not None and others:
            writer.streams.roll(STREAM, new_writer=self.rng.choice(others))
            self.counts["moves"] += 1

    def _trim(self) -> None:
        """Somebody deletes records that were acknowledged a while ago."""
        writer = self._writer()
        if writer is not None and self.clients.acked:
            before = self.rng.randint(0, max(self.clients.acked)) // 2
            self._trimmed = max(self._trimmed, before)
            writer.trim(before)
            self.counts["trims"] += 1

    def _join(self) -> None:
        """The writer joins its ranges when they are many."""
        writer = self._writer()
        if writer is not None:
            writer.join_ranges()

    def _nearby(self) -> SimNode | None:
        """Every other reader has a replica nearby."""
        up = [node for node in self.nodes.values() if node.streams is not None]
        return self.rng.choice(up) if up and self.rng.random() < 0.5 else None

    def _writer(self) -> SimNode | None:
        node = self.nodes.get(self.stream.writer)
        return node if node is not None and node.streams is not None else None

    # The end.

    async def _heal(self) -> None:
        self._mend()
        for node in self.nodes.values():
            if not node.is_up:
                self._start(node)
        await asyncio.sleep(3 * NORMAL.lease_ms / 1000)

    async def _check_end(self) -> None:
        stamp = ProducerStamp(99, 0, 0)
        self.clients.is_done = False
        async with asyncio.timeout(_HEALED_S):
            await self.clients.write([b"the end"], stamp)
            # Damage is told and mended in the first rounds; in the last there is none.
            while not is_whole(self.stream, set(self.nodes)) or scrubbed(self.nodes.values()):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(1)
        self._check_fatal()
        self.counts["elections"] = self.stream.epoch
        self.counts["seals"] = self.stream.last.index
        # A range that was joined again is of the next generation.
        self.counts["joins"] = sum(one.generation for one in self.stream.ranges)
        if self.stream.start > self._trimmed:
            raise Offended(f"nobody deleted up to {self.stream.start}, only to {self._trimmed}")
        writer = self._writer()
        assert writer is not None, "it has just been written to"
        others = [node for node in self.nodes.values() if node is not writer]
        self.clients.check_all(self.stream.start, [writer, *others])

    def _check_fatal(self) -> None:
        for error in (*self._fatal, *(e for node in self.nodes.values() for e in node.fatal)):
            raise Offended(f"a node failed: {error!r}") from error


def is_whole(stream: Stream, everybody: set[NodeId]) -> bool:
    """Whether every sealed range is on every disk, and the open one is kept by all."""
    sealed = stream.ranges[:-1]
    return set(stream.last.replicas) == everybody and all(
        set(one.holders) == everybody for one in sealed
    )


def scrubbed(nodes: "Iterable[SimNode]") -> int:
    """Let everybody read everything again; how much damage was found."""
    return sum([node.scrub() for node in nodes])


def tell(seed: int, seconds: float, *, policy: str = "fsync") -> ClusterSim:
    """Live through the story of a seed."""
    # Files in memory: the disk's delays are virtual.
    shared = Path("/dev/shm")  # noqa: S108 - a folder of its own is made in it
    folder = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else None))
    sim = ClusterSim(folder, seed, policy=policy)
    try:
        with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
            runner.run(sim.run(seconds))
    except BaseException as error:
        error.add_note(f"seed {seed}, {seconds} s, flush.policy={policy}")
        raise
    finally:
        shutil.rmtree(folder)
    return sim
