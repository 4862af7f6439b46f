"""The nodes of ``simulator``, their network, and their streams."""

import asyncio
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from mainstem.coordination.shards.partitioning import OFFSETS_TOPIC
from mainstem.model.features import LEVELS_OF_0_1, OWN_LEVELS
from mainstem.model.ids import NodeId, PartitionIndex, StreamId, TopicId
from mainstem.model.limits import BATCH_BYTES_MAX, KIB
from mainstem.model.metadata import Stream
from mainstem.model.topic_name import TRANSACTION_STATE_TOPIC
from mainstem.placement.changes.commands import CreateTopic, FormCluster
from mainstem.placement.planning.leases import NORMAL
from mainstem.testing.simulation.cluster.catalogue_group import FRAME_BYTES_MAX, SimCatalogueGroup
from mainstem.testing.simulation.cluster.clients import GuaranteeViolated
from mainstem.testing.simulation.cluster.disk import SimDisk
from mainstem.testing.simulation.cluster.levels import LevelChecker
from mainstem.testing.simulation.cluster.node import EXIT_S, SimNode, folder_level
from mainstem.testing.simulation.cluster.transactions import PARTITIONS
from mainstem.testing.simulation.cluster.transactions import TOPIC as TRANSACTED
from mainstem.testing.simulation.faulty_files import FaultyFiles, FileFault
from mainstem.testing.simulation.peer_network import PeerNetwork
from mainstem.testing.simulation.raft.group import SimulatedLoop

NODES = 3
TOPIC = TopicId(b"simulated topic.")
STREAM = StreamId(TOPIC, PartitionIndex(0))
OTHER_TOPICS = ((TRANSACTED, PARTITIONS), (OFFSETS_TOPIC, 1), (TRANSACTION_STATE_TOPIC, 1))
OTHER_IDS = tuple(TopicId(b"another topic. %d" % number) for number in range(len(OTHER_TOPICS)))
# Streams whose former writers are asked, too: by readers of end offsets and of committed offsets.
WATCHED = (STREAM, StreamId(OTHER_IDS[1], PartitionIndex(0)))
DOUBTFUL = (FileFault.SYNCS_FAIL, FileFault.READS_FAIL)
MESSAGE_BYTES_MAX = 4 * KIB
HUGE_CHANCE = 0.03  # of a scenario to have batches of the maximum size
BEGIN_S = 30.0
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}


class SimCluster:
    """Holds the simulated nodes, their network and their streams.

    Args:
        folder: the folder of all disks.
        rng: the random generator of the scenario.
        policy: the flush policy of all topics.
        files: injects disk faults.
        is_oversize: whether some messages are too large.
        is_mixed: whether nodes of two releases take part.
    """

    def __init__(
        self,
        folder: Path,
        rng: Random,
        policy: str,
        files: FaultyFiles,
        *,
        is_oversize: bool,
        is_mixed: bool,
    ) -> None:
        self.rng = rng
        self.network = PeerNetwork(delay_s=0.005, rng=rng)
        members = tuple(NodeId(number) for number in range(1, NODES + 1))
        self.judge = LevelChecker() if is_mixed else None
        self.catalogue_group = SimCatalogueGroup(folder, rng, members, self.judge)
        self.is_huge = is_oversize and rng.random() < HUGE_CHANCE
        self.message_bytes_max = BATCH_BYTES_MAX if self.is_huge else MESSAGE_BYTES_MAX
        if not self.is_huge:
            self.network.frame_bytes_max = FRAME_BYTES_MAX
        self.nodes = {member: self._node(member, folder, files) for member in members}
        self.policy = policy
        self._known: Stream
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop), "time is virtual"
        self.loop = loop
        self._fatal: list[BaseException] = []

    def _node(self, node: NodeId, folder: Path, files: FaultyFiles) -> SimNode:
        member, streams = self.catalogue_group.nodes[node], folder / f"streams-{node}"
        disk = SimDisk(files, (streams, member.folder), member.disk)
        return SimNode(node, streams, self.catalogue_group, self.network, disk, self.rng)

    async def begin(self) -> None:
        """Start all nodes and create the topics."""
        asyncio.get_running_loop().set_exception_handler(self._failed)
        if self.judge is not None:
            for node in self.nodes.values():
                node.levels = self.rng.choice((LEVELS_OF_0_1, LEVELS_OF_0_1, OWN_LEVELS))
                node.on_refused = partial(self._start_again, node)
        beginning = [self._begin(node) for node in self.nodes.values()]
        await asyncio.wait(beginning, timeout=BEGIN_S)
        self.check_fatal()
        if not all(task.done() and not task.cancelled() for task in beginning):
            raise GuaranteeViolated(f"not every node has started within {BEGIN_S} s")
        for task in beginning:
            task.result()
        if self.judge is None:
            await self.catalogue_group.service.submit(FormCluster("simulated"))
        configs = {"flush.policy": self.policy, "segment.bytes": "1048576"}
        bounded = configs | {"max.message.bytes": str(self.message_bytes_max)}
        topic = await self.catalogue_group.service.submit(
            CreateTopic(TOPIC, "t", 1, NODES, bounded)
        )
        self._known = topic.streams[0]
        for other, (name, partitions) in zip(OTHER_IDS, OTHER_TOPICS, strict=True):
            kept = configs if name == TRANSACTED else configs | COMPACTED
            command = CreateTopic(other, name, partitions, NODES, kept)
            await self.catalogue_group.service.submit(command)

    @property
    def stream(self) -> Stream:
        """The stream that all clients write to, in the committed catalogue."""
        found = self.catalogue_group.service.catalogue.stream(STREAM)
        if found is not None:  # a node that has just started may have an empty catalogue
            self._known = found
        return self._known

    def streams(self) -> list[Stream]:
        """All streams of the committed catalogue."""
        found = self.catalogue_group.service.catalogue
        return [stream for topic in found.topics() for stream in topic.streams]

    def find(self, topic: str, partition: int) -> SimNode | None:
        """The writer of a partition, as in the metadata of clients."""
        found = self.catalogue_group.service.catalogue.topic(topic)
        node = None if found is None else self.nodes.get(found.streams[partition].writer)
        return node if node is not None and node.streams is not None else None

    def writer(self) -> SimNode | None:
        """The writer of the stream that all clients write to."""
        node = self.nodes.get(self.stream.writer)
        return node if node is not None and node.streams is not None else None

    def up(self) -> list[SimNode]:
        """The nodes that were not killed."""
        return [node for node in self.nodes.values() if node.is_up]

    def serving(self) -> list[SimNode]:
        """The nodes that serve requests."""
        return [node for node in self.nodes.values() if node.streams is not None]

    def nearby(self) -> SimNode | None:
        """For about half of the reads a random serving node, otherwise None."""
        up = [node for node in self.nodes.values() if node.streams is not None]
        return self.rng.choice(up) if up and self.rng.random() < 0.5 else None

    def is_whole(self) -> bool:
        """Whether all ranges have all their replicas."""
        all_nodes, streams = set(self.nodes), self.streams()
        return bool(streams) and all(is_whole(stream, all_nodes) for stream in streams)

    def can_lose_one_node(self) -> bool:
        """Whether all nodes are up, no disk may have lost data and all replicas are complete."""
        return (
            len(self.up()) == NODES
            and not any(node.disk.has(fault) for node in self.up() for fault in DOUBTFUL)
            and self.is_whole()
        )

    def start(self, node: SimNode) -> None:
        """Start a node again."""

        def begun(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                node.failed(error)

        if node.levels != OWN_LEVELS and folder_level(node) > node.levels[1]:
            node.refusals += 1
            node.levels = OWN_LEVELS
        self._begin(node).add_done_callback(begun)

    def _begin(self, node: SimNode) -> "asyncio.Task[None]":
        if self.judge is not None:
            self.judge.releases[node.id, node.incarnation + 1] = node.levels
        return node.begin()

    def _start_again(self, node: SimNode) -> None:
        """Start the newer release some time after an older one refused to start."""

        def start() -> None:
            if not node.is_up:
                self.start(node)

        self.loop.call_later(1.0, start)

    def repair(self) -> None:
        """Restore all connections."""
        self.network.heal()
        self.catalogue_group.heal()

    async def heal(self) -> None:
        """End all faults and start all nodes."""
        self.repair()
        for node in self.nodes.values():
            node.disk.end()
            node.process.resume()
        await asyncio.sleep(EXIT_S)  # a node whose disk has just failed exits
        self.loop.end_stalls()
        for node in self.nodes.values():
            if not node.is_up:
                self.start(node)
        await asyncio.sleep(3 * NORMAL.lease_ms / 1000)

    def is_sound(self) -> bool:
        """Whether scrubbing finds no damage; damage is reported, so that it is repaired.

        A replica of an open range is repaired when the range is sealed.
        """
        damaged = {stream for node in self.nodes.values() for stream in node.scrub()}
        for stream in sorted(damaged):
            known = self.catalogue_group.service.catalogue.stream(stream)
            writer = None if known is None else self.nodes[known.writer]
            if writer is not None and writer.streams is not None:
                writer.streams.roll(stream)
        return not damaged

    def check_fatal(self) -> None:
        """Check that no node failed unexpectedly and that all messages fit into frames."""
        if self.judge is not None:
            _check_levels(self.judge, self.nodes.values())
        for unsent in (*self.network.unsent, *self.catalogue_group.unsent):
            raise GuaranteeViolated(f"a node could not send a message: {unsent}")
        for error in (*self._fatal, *(e for node in self.nodes.values() for e in node.fatal)):
            raise GuaranteeViolated(f"a node failed: {error!r}") from error

    def _failed(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Record an exception of a task that is not awaited."""
        error = context.get("exception")
        if error is None and "was destroyed" in context["message"]:
            return  # what a killed process left behind
        self._fatal.append(error or GuaranteeViolated(context["message"]))


def is_whole(stream: Stream, all_nodes: set[NodeId]) -> bool:
    """Whether every sealed range is on every disk, and the open one on all nodes."""
    sealed = stream.ranges[:-1]
    return set(stream.last.replicas) == all_nodes and all(
        set(one.holders) == all_nodes for one in sealed
    )


def _check_levels(judge: LevelChecker, nodes: Iterable[SimNode]) -> None:
    if judge.error is not None:
        raise GuaranteeViolated(judge.error)
    for node in nodes if judge.level == 1 else ():
        if folder_level(node) > 1:
            raise GuaranteeViolated(f"the folder of node {node.id} is written at level 2 too early")


def hand_over(cluster: SimCluster, stream: Stream) -> SimNode | None:
    """Let the writer of a stream hand it over; returns the writer, None if there is none."""
    writer = cluster.nodes.get(stream.writer)
    others = [node for node in stream.last.replicas if node != stream.writer]
    if writer is None or writer.streams is None or not others:
        return None
    writer.streams.roll(stream.id, new_writer=cluster.rng.choice(others))
    return writer
