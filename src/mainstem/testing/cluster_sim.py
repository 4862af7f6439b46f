"""Replicated streams in a hostile world: real drivers and files, virtual time, one seed per story.

    clients write and read ── nodes are killed, cut off, begun anew ── streams roll and move
                         at the end everything heals, and everything acknowledged is there

Nodes are ``StreamService`` with all its drivers; what they see of the catalogue comes late, and not
at all while they are cut off. Promises that are checked: what was acknowledged is read under its
offset; an offset once read never changes; a producer's batch is stored once, in its order; when all
is well again every stream can be written and every sealed range is whole on all its nodes.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.model.ids import NodeId, PartitionIndex, StreamId, TopicId
from mainstem.model.metadata import Stream
from mainstem.model.record import ProducerStamp
from mainstem.placement.fact import Command
from mainstem.placement.placing import Placing
from mainstem.placement.records import CreateTopic
from mainstem.placement.replication_records import FenceNode, UnfenceNode
from mainstem.testing.cluster_sim_catalogue import SimCatalogue
from mainstem.testing.cluster_sim_clients import Offended, SimClients
from mainstem.testing.cluster_sim_node import SimNode
from mainstem.testing.peer_network import PeerNetwork
from mainstem.testing.raft_cluster import LoopClock, SimulatedLoop

if TYPE_CHECKING:
    from collections.abc import Callable

NODES = 3
CLIENTS = 3
LEASE_S = 1.5
TOPIC = TopicId(b"simulated topic.")
STREAM = StreamId(TOPIC, PartitionIndex(0))
_HEALED_S = 60.0


class ClusterSim:
    """One story."""

    def __init__(self, folder: Path, seed: int, *, policy: str = "fsync") -> None:
        self.rng = Random(seed)  # noqa: S311 - a story
        self.clients = SimClients(self.rng, self._writer)
        self.counts = {"kills": 0, "power losses": 0, "cuts": 0, "rolls": 0, "moves": 0}
        self._policy = policy
        self._folder = folder
        self._is_over = False
        self._fatal: list[BaseException] = []

    async def run(self, seconds: float) -> None:
        """Live through the story; raises ``Offended``."""
        self.network = PeerNetwork(delay_s=0.005, rng=self.rng)
        self.centre = SimCatalogue(LoopClock(), self.rng, self._fatal.append)
        self.nodes = {
            NodeId(number): SimNode(
                number, self._folder / f"node-{number}", self.centre, self.network
            )
            for number in range(1, NODES + 1)
        }
        for node in self.nodes.values():
            await node.start()
        configs = {"flush.policy": self._policy, "segment.bytes": "1048576"}
        await self.centre.service.submit(CreateTopic(TOPIC, "t", 1, NODES, configs))
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self.clients.write_for_ever(number)) for number in range(CLIENTS)]
        tasks += [loop.create_task(self.clients.read_for_ever())]
        upkeep = [loop.create_task(self._leases()), loop.create_task(self._place())]
        await self._storm(seconds)
        await self._heal()
        self.clients.is_done = True
        await asyncio.gather(*tasks)
        await self._check_end()
        self._is_over = True
        await asyncio.gather(*upkeep)
        for node in self.nodes.values():
            node.kill()
        await asyncio.sleep(1)

    @property
    def stream(self) -> Stream:
        """The stream as it is decided."""
        return self.centre.service.catalogue.need_stream(STREAM)

    # The hostile world.

    async def _storm(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        acts: list[Callable[[], None]] = [
            self._kill, self._kill, self._begin, self._begin, self._cut_off, self._mend,
            self._mend, self._cut_one_way, self._roll, self._move,
        ]  # fmt: skip
        while loop.time() < until:
            await asyncio.sleep(self.rng.random() * 2)
            self.rng.choice(acts)()
            self._check_fatal()

    def _kill(self) -> None:
        up = [node for node in self.nodes.values() if node.is_up]
        if len(up) > 1:
            # Two power losses before anybody is whole again are more than two copies can bear.
            power = len(up) == NODES and self._is_whole() and self.rng.random() < 0.5
            self.rng.choice(up).kill(power=power)
            self.counts["power losses" if power else "kills"] += 1

    def _begin(self) -> None:
        down = [node for node in self.nodes.values() if not node.is_up]
        if down:
            self._start(self.rng.choice(down))

    def _start(self, node: SimNode) -> None:
        node.is_up = True  # nobody begins it twice
        task = asyncio.get_running_loop().create_task(node.start())

        def begun(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                self._fatal.append(error)

        task.add_done_callback(begun)

    def _cut_off(self) -> None:
        node = self.rng.choice(list(self.nodes.values()))
        node.is_reachable = False
        self.network.isolate(node.id)
        self.counts["cuts"] += 1

    def _cut_one_way(self) -> None:
        source, target = self.rng.sample(list(self.nodes), 2)
        self.network.cut(source, target)
        self.counts["cuts"] += 1

    def _mend(self) -> None:
        self.network.heal()
        for node in self.nodes.values():
            node.is_reachable = True

    def _roll(self) -> None:
        writer = self._writer()
        if writer is not None:
            writer.streams.roll(STREAM)
            self.counts["rolls"] += 1

    def _move(self) -> None:
        writer = self._writer()
        others = [node for node in self.stream.last.replicas if node != self.stream.writer]
        if writer is not None and others:
            writer.streams.roll(STREAM, new_writer=self.rng.choice(others))
            self.counts["moves"] += 1

    def _writer(self) -> SimNode | None:
        node = self.nodes.get(self.stream.writer)
        return node if node is not None and node.is_up and hasattr(node, "streams") else None

    async def _leases(self) -> None:
        """Whoever is not heard of is fenced; whoever is heard of again is not."""
        heard = dict.fromkeys(self.nodes, 0.0)
        loop = asyncio.get_running_loop()
        while not self._is_over:
            await asyncio.sleep(0.3)
            for node in self.nodes.values():
                known = self.centre.service.catalogue.node(node.id)
                assert known is not None, "all nodes registered"
                current = known.incarnation
                if node.is_up and node.is_reachable:
                    heard[node.id] = loop.time()
                    if known.fenced and current == node.incarnation:
                        await self._submit(UnfenceNode(node.id, current))
                elif loop.time() - heard[node.id] > LEASE_S and not known.fenced:
                    await self._submit(FenceNode(node.id, current, "no lease"))

    async def _place(self) -> None:
        """What the placement leader does besides."""
        placing = Placing()
        clock = LoopClock()
        while not self._is_over:
            await asyncio.sleep(0.5)
            steps = placing.step(self.centre.service.catalogue, int(clock.monotonic() * 1000))
            for command in steps.commands:
                await self._submit(command)
            for name, orders in steps.orders.items():
                node = self.nodes[name]
                if node.is_up and node.is_reachable and hasattr(node, "streams"):
                    for order in orders:
                        node.streams.roll(order.stream, new_writer=order.new_writer)

    async def _submit(self, command: Command[Any]) -> None:
        try:
            await self.centre.service.submit(command)
        except MainstemError as error:
            if error.code is not ErrorCode.FENCED_EPOCH:
                raise

    # The end.

    async def _heal(self) -> None:
        self._mend()
        for node in self.nodes.values():
            if not node.is_up:
                self._start(node)
        await asyncio.sleep(3 * LEASE_S)

    async def _check_end(self) -> None:
        stamp = ProducerStamp(99, 0, 0)
        self.clients.is_done = False
        async with asyncio.timeout(_HEALED_S):
            await self.clients.write([b"the end"], stamp)
            while not self._is_whole():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.2)
        self._check_fatal()
        writer = self._writer()
        assert writer is not None, "it has just been written to"
        self.clients.read(writer)
        for offset, value in self.clients.acked.items():
            if self.clients.seen.get(offset) != value:
                raise Offended(f"{value!r} at {offset} is lost: {self.clients.seen.get(offset)!r}")
        values = list(self.clients.seen.values())
        if len(values) != len(set(values)):
            raise Offended("a batch was stored twice")

    def _is_whole(self) -> bool:
        """Whether every sealed range is on every disk."""
        stream = self.stream
        everybody = set(self.nodes)
        return set(stream.last.replicas) == everybody and all(
            set(one.holders) == everybody for one in stream.ranges[:-1]
        )

    def _check_fatal(self) -> None:
        for error in (*self._fatal, *(e for node in self.nodes.values() for e in node.fatal)):
            raise Offended(f"a node failed: {error!r}") from error


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


def main() -> None:
    """Tell story after story."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60.0)
    args = parser.parse_args()
    for seed in range(args.seed, args.seed + args.count):
        sim = tell(seed, args.seconds, policy="fsync" if seed % 2 else "written")
        sys.stdout.write(f"seed {seed}: {len(sim.clients.acked)} acknowledged, {sim.counts}\n")


if __name__ == "__main__":
    main()
