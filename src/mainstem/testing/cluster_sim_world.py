"""The nodes of ``cluster_sim``, what is between them, and what is known of their streams."""

import asyncio
from pathlib import Path
from random import Random
from typing import Any

from mainstem.coordination.partitions import OFFSETS_TOPIC
from mainstem.model.ids import NodeId, PartitionIndex, StreamId, TopicId
from mainstem.model.metadata import Stream
from mainstem.model.topic_name import TRANSACTION_STATE_TOPIC
from mainstem.placement.leases import NORMAL
from mainstem.placement.records import CreateTopic
from mainstem.testing.cluster_sim_clients import Offended
from mainstem.testing.cluster_sim_council import SimCouncil
from mainstem.testing.cluster_sim_disk import SimDisk
from mainstem.testing.cluster_sim_node import SimNode
from mainstem.testing.cluster_sim_transactions import PARTITIONS
from mainstem.testing.cluster_sim_transactions import TOPIC as TRANSACTED
from mainstem.testing.faulty_files import FaultyFiles, FileFault
from mainstem.testing.peer_network import PeerNetwork
from mainstem.testing.raft_cluster import SimulatedLoop

NODES = 3
TOPIC = TopicId(b"simulated topic.")
STREAM = StreamId(TOPIC, PartitionIndex(0))
OTHER_TOPICS = ((TRANSACTED, PARTITIONS), (OFFSETS_TOPIC, 1), (TRANSACTION_STATE_TOPIC, 1))
DOUBTFUL = (FileFault.SYNCS_FAIL, FileFault.READS_FAIL)
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}


class SimWorld:
    """See the module's text.

    Args:
        folder: all disks.
        rng: the story's chance.
        policy: the flush policy of all topics.
        files: where disks fail.
    """

    def __init__(self, folder: Path, rng: Random, policy: str, files: FaultyFiles) -> None:
        self.rng = rng
        self.network = PeerNetwork(delay_s=0.005, rng=rng)
        members = tuple(NodeId(number) for number in range(1, NODES + 1))
        self.council = SimCouncil(folder, rng, members)
        self.nodes = {member: self._node(member, folder, files) for member in members}
        self.policy = policy
        self._known: Stream
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop), "time is virtual"
        self.loop = loop
        self._fatal: list[BaseException] = []

    def _node(self, node: NodeId, folder: Path, files: FaultyFiles) -> SimNode:
        member, streams = self.council.nodes[node], folder / f"streams-{node}"
        disk = SimDisk(files, (streams, member.folder), member.disk)
        return SimNode(node, streams, self.council, self.network, disk, self.rng)

    async def begin(self) -> None:
        """All nodes begin, and make the topics."""
        asyncio.get_running_loop().set_exception_handler(self._failed)
        await asyncio.gather(*(node.begin() for node in self.nodes.values()))
        configs = {"flush.policy": self.policy, "segment.bytes": "1048576"}
        topic = await self.council.service.submit(CreateTopic(TOPIC, "t", 1, NODES, configs))
        self._known = topic.streams[0]
        for number, (name, partitions) in enumerate(OTHER_TOPICS):
            other = TopicId(b"another topic. %d" % number)
            kept = configs if name == TRANSACTED else configs | COMPACTED
            command = CreateTopic(other, name, partitions, NODES, kept)
            await self.council.service.submit(command)

    @property
    def stream(self) -> Stream:
        """The stream that all clients write to, as it is decided."""
        found = self.council.service.catalogue.stream(STREAM)
        if found is not None:  # a node that has just begun may know nothing yet
            self._known = found
        return self._known

    def streams(self) -> list[Stream]:
        """All streams as they are decided."""
        found = self.council.service.catalogue
        return [stream for topic in found.topics() for stream in topic.streams]

    def find(self, topic: str, partition: int) -> SimNode | None:
        """Who writes a partition, as clients are told."""
        found = self.council.service.catalogue.topic(topic)
        node = None if found is None else self.nodes.get(found.streams[partition].writer)
        return node if node is not None and node.streams is not None else None

    def writer(self) -> SimNode | None:
        """Who writes the stream that all clients write to."""
        node = self.nodes.get(self.stream.writer)
        return node if node is not None and node.streams is not None else None

    def up(self) -> list[SimNode]:
        """The nodes that were not killed."""
        return [node for node in self.nodes.values() if node.is_up]

    def serving(self) -> list[SimNode]:
        """The nodes that take requests."""
        return [node for node in self.nodes.values() if node.streams is not None]

    def nearby(self) -> SimNode | None:
        """Every other reader has a replica nearby."""
        up = [node for node in self.nodes.values() if node.streams is not None]
        return self.rng.choice(up) if up and self.rng.random() < 0.5 else None

    def is_whole(self) -> bool:
        """Whether every copy of everything is there."""
        everybody, streams = set(self.nodes), self.streams()
        return bool(streams) and all(is_whole(stream, everybody) for stream in streams)

    def may_lose_one(self) -> bool:
        """Whether all nodes are up, no disk is doubtful and every copy is whole."""
        return (
            len(self.up()) == NODES
            and not any(node.disk.has(fault) for node in self.up() for fault in DOUBTFUL)
            and self.is_whole()
        )

    def start(self, node: SimNode) -> None:
        """A node begins anew."""

        def begun(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                node.failed(error)

        node.begin().add_done_callback(begun)

    def mend(self) -> None:
        """Everybody reaches everybody."""
        self.network.heal()
        self.council.heal()

    async def heal(self) -> None:
        """Nothing hostile happens any more."""
        self.mend()
        self.loop.end_stalls()
        for node in self.nodes.values():
            node.disk.end()
            node.process.resume()
        for node in self.nodes.values():
            if not node.is_up:
                self.start(node)
        await asyncio.sleep(3 * NORMAL.lease_ms / 1000)

    def is_sound(self) -> bool:
        """Whether nobody finds any damage; what is found is told, to be mended.

        A copy of an open range is mended when it is sealed.
        """
        damaged = {stream for node in self.nodes.values() for stream in node.scrub()}
        for stream in sorted(damaged):
            known = self.council.service.catalogue.stream(stream)
            writer = None if known is None else self.nodes[known.writer]
            if writer is not None and writer.streams is not None:
                writer.streams.roll(stream)
        return not damaged

    def check_fatal(self) -> None:
        """Nothing may have ended a node."""
        for error in (*self._fatal, *(e for node in self.nodes.values() for e in node.fatal)):
            raise Offended(f"a node failed: {error!r}") from error

    def _failed(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What nobody waited for went wrong."""
        error = context.get("exception")
        if error is None and "was destroyed" in context["message"]:
            return  # what a killed process left behind
        self._fatal.append(error or Offended(context["message"]))


def is_whole(stream: Stream, everybody: set[NodeId]) -> bool:
    """Whether every sealed range is on every disk, and the open one is kept by all."""
    sealed = stream.ranges[:-1]
    return set(stream.last.replicas) == everybody and all(
        set(one.holders) == everybody for one in sealed
    )
