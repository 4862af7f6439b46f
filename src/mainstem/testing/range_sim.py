"""The machines of replicated ranges in a small world that loses, repeats and delays everything.

Nodes with a disk each, one stream, a catalogue that is always right, and a bag of messages from
which anything may be taken next, dropped or taken twice. Disks work only when told to; a node that
stops forgets what it had not stored, one that loses its power also what it had not synced. After
every act ``check`` looks at the disks and at what clients were told: the oracles are those of
``range_model``.
"""

from mainstem.model.ids import Epoch, NodeId, Offset, PartitionIndex, RangeIndex, StreamId, TopicId
from mainstem.model.metadata import Range, Stream
from mainstem.streams.ack_policy import AckPolicy, policy_for
from mainstem.testing.range_model import Oracle
from mainstem.testing.range_sim_catalogue import SimCatalogue
from mainstem.testing.range_sim_messages import (
    Message,
    Settings,
)
from mainstem.testing.range_sim_node import SimNode
from mainstem.testing.range_sim_role import SimRole

STREAM = StreamId(TopicId(bytes(16)), PartitionIndex(0))
TICK_MS = 500


class Offended(AssertionError):
    """An oracle was offended."""

    def __init__(self, oracle: Oracle, what: str) -> None:
        super().__init__(f"{oracle.name}: {what}")
        self.oracle = oracle


class RangeSim:
    """One stream on a few nodes; every public method is one act, and checks the oracles."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.now = 0
        self.bag: list[Message] = []
        names = [NodeId(number) for number in range(settings.nodes)]
        self.nodes = {name: SimNode(name, settings) for name in names}
        opened = Range(
            index=RangeIndex(0), start=Offset(0), epoch=Epoch(1),
            replicas=tuple(names[: settings.replicas]),
        )  # fmt: skip
        stream = Stream(STREAM, Epoch(1), names[0], Offset(0), (opened,))
        self.catalogue = SimCatalogue(stream, {n: self.nodes[n].directory for n in names}, settings)
        self.roles: list[SimRole] = [SimRole(self, names[0], Epoch(1))]
        self.roles[0].open(opened)
        self.acked: dict[Offset, tuple[RangeIndex, int]] = {}
        self.values = 0
        # Ranges that were recovered with fewer copies than acknowledgements take.
        self.lone: set[RangeIndex] = set()
        self.power_losses = 0
        self.lost_disks = 0

    def policy(self, held_by: tuple[NodeId, ...]) -> AckPolicy:
        """A of R for a range on these nodes."""
        return policy_for(len(held_by), min_insync=1, acks=self.settings.acks)

    def produce(self, role: SimRole, count: int) -> None:
        """A client sends a batch to a node that takes itself for the writer."""
        fresh = tuple(range(self.values, self.values + count))
        self.values += count
        role.append(fresh)
        self.check()

    def deliver(self, place: int, *, again: bool = False) -> None:
        """A message arrives; ``again``: a copy of it stays under way."""
        sent = self.bag[place] if again else self.bag.pop(place)
        self._receive(sent)
        self.check()

    def drop(self, place: int) -> None:
        """A message is lost."""
        del self.bag[place]

    def store(self, node: NodeId) -> None:
        """A disk does the next thing it was asked to do."""
        self.post(self.nodes[node].store_next())
        self.check()

    def tick(self, by_ms: int = TICK_MS) -> None:
        """Time passes for everybody."""
        self.now += by_ms
        for role in self.live_roles():
            role.on_time()
        self.check()

    def stop(self, node: NodeId, *, loses_power: bool) -> None:
        """A process, or a whole machine, stops and starts again; its writers are gone."""
        self.power_losses += loses_power
        self.nodes[node].restart(loses_power=loses_power, done=self.catalogue.done)
        for role in self.roles:
            if role.node == node:
                role.is_alive = False
        self.check()

    def replace_disk(self, node: NodeId) -> None:
        """A disk is destroyed and a blank one takes its place."""
        self.lost_disks += 1
        self.nodes[node].replace_disk(self.lost_disks)
        self.catalogue.directory_changed(node, self.nodes[node].directory)
        for role in self.roles:
            if role.node == node:
                role.is_alive = False
        self.check()

    def elect(self, node: NodeId) -> None:
        """The catalogue gives the stream to a node under the next epoch."""
        stream = self.catalogue.elect(node)
        role = SimRole(self, node, stream.epoch)
        self.roles.append(role)
        role.take_over(stream)
        self.check()

    def seal(self, role: SimRole, *, new_writer: NodeId | None = None) -> None:
        """A writer seals its range of its own accord."""
        role.seal(new_writer=new_writer)
        self.check()

    def reconnect(self, role: SimRole, node: NodeId) -> None:
        """What is under way between a writer and a node is lost, and both know it."""
        self.bag = [m for m in self.bag if not (m.to_epoch == role.epoch and m.sender == node)]
        if role.is_alive:
            role.on_reconnected(node)
        self.check()

    def tell_sealed(self, node: NodeId) -> None:
        """A node hears which of its ranges are sealed, completes them and reports it."""
        for one in self.catalogue.stream.ranges:
            named = self.catalogue.directories[one.index].get(node)
            mine = node in one.replicas and named == self.nodes[node].directory
            if one.end is None or not mine:
                continue
            if self.nodes[node].hear_sealed(one, self._sealed_values(one)):
                self.catalogue.done.add((one.index, node, self.nodes[node].directory))
        self.check()

    def settle(self, rounds: int = 400) -> None:
        """Everything heals: messages arrive, disks work, time passes."""
        if self.newest_role() is None:
            self.elect(self.catalogue.stream.last.replicas[0])
        for _ in range(rounds):
            for _ in range(len(self.bag)):
                self._receive(self.bag.pop(0))
            for name in self.nodes:
                while self.nodes[name].has_work:
                    self.post(self.nodes[name].store_next())
            self.check()
            if not self.bag:
                self.tick()
            if self._is_settled():
                return
        raise AssertionError("everything works and yet nothing is committed any more")

    def _is_settled(self) -> bool:
        role = self.newest_role()
        return (
            not self.bag
            and role is not None
            and role.writer is not None
            and role.writer.committed == role.writer.next_offset
            and not role.writer.is_frozen
        )

    def live_roles(self) -> list[SimRole]:
        """Nodes that take themselves for the writer, rightly or not."""
        return [role for role in self.roles if role.is_alive]

    def newest_role(self) -> SimRole | None:
        """The elected writer, if it runs."""
        last = self.roles[-1]
        return last if last.is_alive else None

    def post(self, sent: list[Message]) -> None:
        """Messages go into the bag."""
        self.bag.extend(sent)

    def committed(self, role: SimRole, until: Offset) -> None:
        """A writer tells its clients that everything below ``until`` is safe."""
        assert role.writer is not None
        opened = role.writer.opened
        for number in range(opened.start, until):
            offset = Offset(number)
            found = (opened.index, role.values[offset])
            told = self.acked.setdefault(offset, found)
            if told != found:
                raise Offended(Oracle.DIVERGENCE, f"offset {offset} was acknowledged twice")

    def _receive(self, message: Message) -> None:
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
        role = SimRole(self, stream.writer, stream.epoch)
        role.open(stream.last)
        self.roles.append(role)

    def _sealed_values(self, one: Range) -> list[int] | None:
        """What a peer that is done can give."""
        for index, node, directory in sorted(self.catalogue.done):
            held = self.nodes[node]
            if index == one.index and held.directory == directory:
                return held.values(one.index)
        return None

    def check(self) -> None:
        """Look at the disks and at what clients were told."""
        for one in self.catalogue.ranges:
            self._check_divergence(one)
            acked = [o for o, (index, _) in self.acked.items() if index == one.index]
            if one.suspect and one.end is not None:
                self._forget_lost(one.index, one.end)
                continue
            safe_until = max(acked, default=one.start - 1) + 1
            if one.end is not None and safe_until > one.end:
                raise Offended(Oracle.ACKED_LOST, f"{safe_until} acked, sealed at {one.end}")
            is_whole = one.end is not None and one.index not in self.lone
            self._check_durability(one, one.end or 0 if is_whole else safe_until)
        self._check_done()

    def _forget_lost(self, index: RangeIndex, end: Offset) -> None:
        """A suspect range has told everybody that records may be missing beyond its end."""
        lost = [o for o, (acked_in, _) in self.acked.items() if acked_in == index and o >= end]
        for offset in lost:
            del self.acked[offset]

    def _check_divergence(self, one: Range) -> None:
        held = [node.values(one.index) for node in self.nodes.values()]
        longest = max(held, key=len)
        for values in held:
            if longest[: len(values)] != values:
                raise Offended(Oracle.DIVERGENCE, f"{values} and {longest}")
        for offset, (index, value) in self.acked.items():
            at = offset - one.start
            if index == one.index and at < len(longest) and longest[at] != value:
                raise Offended(Oracle.DIVERGENCE, f"offset {offset} was {value}: {longest}")

    def _check_durability(self, one: Range, safe_until: int) -> None:
        """What is acknowledged or sealed is on A disks, less those that were lost."""
        unsynced = self.settings.acks_unsynced
        losses = self.lost_disks + (self.power_losses if unsynced else 0)
        policy = self.policy(one.replicas)
        if losses > policy.losses_tolerated:
            return
        count = safe_until - one.start
        held = [self.nodes[name] for name in one.replicas]
        copies = sum(
            (len(node.values(one.index)) if unsynced else node.synced(one.index)) >= count
            for node in held
        )
        if copies < policy.acks - losses:
            raise Offended(Oracle.DURABILITY, f"{safe_until} of {one.index} is on {copies} disks")

    def _check_done(self) -> None:
        for index, name, directory in self.catalogue.done:
            one = self.catalogue.range_of(index)
            node = self.nodes[name]
            assert one.end is not None
            if node.directory == directory and node.synced(index) < one.end - one.start:
                raise Offended(Oracle.SYNCED_COPIES, f"node {name} is not done with range {index}")
