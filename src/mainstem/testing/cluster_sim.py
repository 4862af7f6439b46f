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
from mainstem.model.record import ProducerStamp, Record, build_batch, records_of
from mainstem.placement.fact import Command
from mainstem.placement.placing import Placing
from mainstem.placement.records import CreateTopic
from mainstem.placement.replication_records import FenceNode, UnfenceNode
from mainstem.testing.cluster_sim_catalogue import SimCatalogue
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


class Offended(AssertionError):
    """A promise was broken."""


class ClusterSim:
    """One story."""

    def __init__(self, folder: Path, seed: int, *, policy: str = "fsync") -> None:
        self.rng = Random(seed)  # noqa: S311 - a story
        self.acked: dict[int, bytes] = {}
        self.seen: dict[int, bytes] = {}
        self.counts = {"kills": 0, "cuts": 0, "rolls": 0, "moves": 0}
        self._policy = policy
        self._folder = folder
        self._is_done = False  # nobody writes any more
        self._is_over = False
        self._fatal: list[BaseException] = []
        self._next_value = 0

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
        tasks = [loop.create_task(self._client(number)) for number in range(CLIENTS)]
        tasks += [loop.create_task(self._reader())]
        upkeep = [loop.create_task(self._leases()), loop.create_task(self._place())]
        await self._storm(seconds)
        await self._heal()
        self._is_done = True
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
            self.rng.choice(up).kill()
            self.counts["kills"] += 1

    def _begin(self) -> None:
        down = [node for node in self.nodes.values() if not node.is_up]
        if down:
            self._start(self.rng.choice(down))

    def _start(self, node: SimNode) -> None:
        node.is_up = True  # nobody begins it twice
        task = asyncio.get_running_loop().create_task(node.start())
        task.add_done_callback(self._begun)

    def _begun(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fatal.append(error)

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

    # Clients.

    async def _client(self, number: int) -> None:
        """Write batch after batch, each until it is acknowledged."""
        sequence = 0
        while not self._is_done:
            await asyncio.sleep(self.rng.random() * 0.2)
            count = self.rng.randint(1, 3)
            values = [b"%d" % (self._next_value + at) for at in range(count)]
            self._next_value += count
            stamp = ProducerStamp(number, 0, sequence)
            base = await self._write(values, stamp)
            if base is None:
                return
            sequence += count
            for at, value in enumerate(values):
                if self.acked.setdefault(base + at, value) != value:
                    raise Offended(f"offset {base + at} was acknowledged twice")

    async def _write(self, values: list[bytes], stamp: ProducerStamp) -> int | None:
        records = [Record(0, 1, b"k", value) for value in values]
        while True:
            writer = self._writer()
            try:
                if writer is not None:
                    batch = build_batch(records, producer=stamp)
                    async with asyncio.timeout(5):
                        return await writer.streams.append("t", 0, batch)
            except (MainstemError, TimeoutError, AttributeError) as error:
                self._check_refusal(error, stamp)
            if self._is_done:
                return None
            await asyncio.sleep(0.1)

    def _check_refusal(self, error: Exception, stamp: ProducerStamp) -> None:
        if isinstance(error, MainstemError) and not error.retriable:
            raise Offended(f"a retry of {stamp} is refused: {error}")

    async def _reader(self) -> None:
        while not self._is_done:
            await asyncio.sleep(self.rng.random())
            writer = self._writer()
            if writer is None:
                continue
            try:
                self._read(writer)
            except (MainstemError, AttributeError) as error:
                if isinstance(error, MainstemError) and not error.retriable:
                    raise Offended(f"cannot be read: {error}") from error

    def _read(self, node: SimNode) -> None:
        stream = node.streams.door("t", 0)
        offset = stream.start_offset
        while True:
            part = stream.read(offset, max_bytes=10**6, committed_only=False, min_one=True)
            if part is None:
                return
            for at, value in _values(part.read()):
                if self.seen.setdefault(at, value) != value:
                    raise Offended(f"offset {at} was {self.seen[at]!r} and is {value!r}")
            offset = part.until_offset

    # The end.

    async def _heal(self) -> None:
        self._mend()
        for node in self.nodes.values():
            if not node.is_up:
                self._start(node)
        await asyncio.sleep(3 * LEASE_S)

    async def _check_end(self) -> None:
        stamp = ProducerStamp(99, 0, 0)
        self._is_done = False
        async with asyncio.timeout(_HEALED_S):
            await self._write([b"the end"], stamp)
            while not self._is_whole():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.2)
        self._check_fatal()
        writer = self._writer()
        assert writer is not None, "it has just been written to"
        self._read(writer)
        for offset, value in self.acked.items():
            if self.seen.get(offset) != value:
                raise Offended(f"{value!r} at {offset} is lost: {self.seen.get(offset)!r}")
        values = list(self.seen.values())
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


def _values(data: bytes) -> list[tuple[int, bytes]]:
    view, found = memoryview(data), list[tuple[int, bytes]]()
    while view:
        size = 12 + int.from_bytes(view[8:12], "big")
        found += [(record.offset, record.value or b"") for record in records_of(view[:size])]
        view = view[size:]
    return found


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
        sys.stdout.write(f"seed {seed}: {len(sim.acked)} acknowledged, {sim.counts}\n")


if __name__ == "__main__":
    main()
