"""The state machines of replicated ranges with messages that are lost, repeated and delayed.

Nodes with a disk each, one stream, a reliable catalogue, and a pool of messages of which any may be
delivered next, dropped or delivered twice. Disks are stepped explicitly; a node that stops loses
what it had not stored, one that loses power also what it had not synced. After every action
``check`` examines the disks and what was acknowledged to clients: the oracles are those of
``state``.
"""

from tests.kit.range_checker.state import Oracle
from tests.kit.simulation.ranges.catalogue import RangeSimCatalogue
from tests.kit.simulation.ranges.invariants import InvariantViolated, check
from tests.kit.simulation.ranges.messages import (
    RangeSimMessage,
    RangeSimSettings,
)
from tests.kit.simulation.ranges.node import RangeSimNode
from tests.kit.simulation.ranges.writer_role import SimWriterRole

from mainstem.model.ids import Epoch, NodeId, Offset, PartitionIndex, RangeIndex, StreamId, TopicId
from mainstem.model.metadata import Range, Stream
from mainstem.streams.ack_policy import AckPolicy, policy_for

STREAM = StreamId(TopicId(bytes(16)), PartitionIndex(0))
TICK_MS = 500


class RangeSimulator:
    """One stream on a few nodes; every public method is one action, and checks the oracles."""

    def __init__(self, settings: RangeSimSettings) -> None:
        self.settings = settings
        self.now = 0
        self.bag: list[RangeSimMessage] = []
        names = [NodeId(number) for number in range(settings.nodes)]
        self.nodes = {name: RangeSimNode(name, settings) for name in names}
        opened = Range(
            index=RangeIndex(0), start=Offset(0), epoch=Epoch(1),
            replicas=tuple(names[: settings.replicas]),
        )  # fmt: skip
        stream = Stream(STREAM, Epoch(1), names[0], Offset(0), (opened,))
        self.catalogue = RangeSimCatalogue(
            stream, {n: self.nodes[n].directory for n in names}, settings
        )
        self.roles: list[SimWriterRole] = [SimWriterRole(self, names[0], Epoch(1))]
        self.roles[0].open(opened)
        self.acked: dict[Offset, tuple[RangeIndex, int]] = {}
        self.values = 0
        # Ranges that were recovered with fewer copies than ``acks``.
        self.lone: set[RangeIndex] = set()
        self.power_losses = 0
        self.lost_disks = 0

    def policy(self, held_by: tuple[NodeId, ...]) -> AckPolicy:
        """A of R for a range on these nodes."""
        return policy_for(len(held_by), min_insync=1, acks=self.settings.acks)

    def produce(self, role: SimWriterRole, count: int) -> None:
        """Send a client's batch to a node that considers itself the writer."""
        fresh = tuple(range(self.values, self.values + count))
        self.values += count
        role.append(fresh)
        check(self)

    def deliver(self, place: int, *, again: bool = False) -> None:
        """Deliver a message; ``again``: a copy of it stays in flight."""
        sent = self.bag[place] if again else self.bag.pop(place)
        self._receive(sent)
        check(self)

    def drop(self, place: int) -> None:
        """Drop a message."""
        del self.bag[place]

    def store(self, node: NodeId) -> None:
        """Carry out the next pending operation of a disk."""
        self.post(self.nodes[node].store_next())
        check(self)

    def tick(self, by_ms: int = TICK_MS) -> None:
        """Advance the time of all nodes."""
        self.now += by_ms
        for role in self.live_roles():
            role.on_time()
        check(self)

    def stop(self, node: NodeId, *, loses_power: bool) -> None:
        """Restart a process, or a whole machine after a power loss; its writers are lost."""
        self.power_losses += loses_power
        self.nodes[node].restart(loses_power=loses_power, done=self.catalogue.done)
        for role in self.roles:
            if role.node == node:
                role.is_alive = False
        check(self)

    def replace_disk(self, node: NodeId) -> None:
        """Destroy a disk and replace it by a blank one."""
        self.lost_disks += 1
        self.nodes[node].replace_disk(self.lost_disks)
        self.catalogue.directory_changed(node, self.nodes[node].directory)
        for role in self.roles:
            if role.node == node:
                role.is_alive = False
        check(self)

    def elect(self, node: NodeId) -> None:
        """Elect a node as the writer of the stream in the next epoch."""
        stream = self.catalogue.elect(node)
        role = SimWriterRole(self, node, stream.epoch)
        self.roles.append(role)
        role.take_over(stream)
        check(self)

    def seal(self, role: SimWriterRole, *, new_writer: NodeId | None = None) -> None:
        """Let a writer seal its range."""
        role.seal(new_writer=new_writer)
        check(self)

    def reconnect(self, role: SimWriterRole, node: NodeId) -> None:
        """Reset the connection between a writer and a node: messages in flight are lost."""
        self.bag = [m for m in self.bag if not (m.to_epoch == role.epoch and m.sender == node)]
        if role.is_alive:
            role.on_reconnected(node)
        check(self)

    def notify_sealed(self, node: NodeId) -> None:
        """Let a node process the seals of its ranges, complete and report them."""
        for one in self.catalogue.stream.ranges:
            named = self.catalogue.directories[one.index].get(node)
            mine = node in one.replicas and named == self.nodes[node].directory
            if one.end is None or not mine:
                continue
            if self.nodes[node].receive_sealed(one, _sealed_values(self, one)):
                self.catalogue.done.add((one.index, node, self.nodes[node].directory))
        check(self)

    def settle(self, rounds: int = 400) -> None:
        """Run without faults: messages arrive, disks work, time passes."""
        if self.newest_role() is None:
            self.elect(self.catalogue.stream.last.replicas[0])
        for _ in range(rounds):
            for _ in range(len(self.bag)):
                self._receive(self.bag.pop(0))
            for name in self.nodes:
                while self.nodes[name].has_work:
                    self.post(self.nodes[name].store_next())
            check(self)
            if not self.bag:
                self.tick()
            if _is_settled(self):
                return
        raise AssertionError("nothing is committed although all faults have ended")

    def live_roles(self) -> list[SimWriterRole]:
        """Nodes that consider themselves the writer, rightly or not."""
        return [role for role in self.roles if role.is_alive]

    def newest_role(self) -> SimWriterRole | None:
        """The elected writer, if it runs."""
        last = self.roles[-1]
        return last if last.is_alive else None

    def post(self, sent: list[RangeSimMessage]) -> None:
        """Put messages into the pool."""
        self.bag.extend(sent)

    def committed(self, role: SimWriterRole, until: Offset) -> None:
        """Acknowledge all records below ``until`` to the writer's clients."""
        assert role.writer is not None
        opened = role.writer.opened
        for number in range(opened.start, until):
            offset = Offset(number)
            found = (opened.index, role.values[offset])
            known = self.acked.setdefault(offset, found)
            if known != found:
                raise InvariantViolated(
                    Oracle.DIVERGENCE, f"offset {offset} was acknowledged twice"
                )

    def _receive(self, message: RangeSimMessage) -> None:
        if message.to_catalogue:
            before = self.catalogue.stream.epoch
            self.post(self.catalogue.receive(message))
            if self.catalogue.stream.epoch > before:
                self._handed_over(self.catalogue.stream)
        elif message.to_node is not None:
            node = self.nodes[message.to_node]
            opened = self.catalogue.range_of(message.range_index)
            assigned = self.catalogue.directories[opened.index][node.name]
            self.post(node.receive(message, opened, assigned))
        else:
            for role in self.live_roles():
                if role.epoch == message.to_epoch:
                    role.receive(message)

    def _handed_over(self, stream: Stream) -> None:
        role = SimWriterRole(self, stream.writer, stream.epoch)
        role.open(stream.last)
        self.roles.append(role)


def _is_settled(sim: RangeSimulator) -> bool:
    role = sim.newest_role()
    return (
        not sim.bag
        and role is not None
        and role.writer is not None
        and role.writer.committed == role.writer.next_offset
        and not role.writer.is_frozen
    )


def _sealed_values(sim: RangeSimulator, one: Range) -> list[int] | None:
    """The records of a peer that is done."""
    for index, node, directory in sorted(sim.catalogue.done):
        held = sim.nodes[node]
        if index == one.index and held.directory == directory:
            return held.values(one.index)
    return None
