"""Whatever nodes do, the placement leader brings everything to rest, and never gives a copy away.

A small cluster around the real catalogue and leader: nodes die, come back, lose their disk,
are drained and join; writers follow orders, replicas copy. Checked all the time: who is listed as
having a range has it, writers are live, nothing is dropped below what acknowledges. Checked at the
end: with everybody back, every stream is where it is wanted, and the leader has nothing to say.
"""

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from mainstem.model.errors import MainstemError
from mainstem.model.ids import NO_NODE, NodeId, Offset, TopicId
from mainstem.model.metadata import Node, Range, Stream
from mainstem.placement.changes import commands
from mainstem.placement.changes import replication_commands as replication
from mainstem.placement.changes.command_and_fact import Command
from mainstem.placement.planning.reconciler import ClusterReconciler, ReconcilerSettings, RollOrder
from mainstem.placement.state import chain
from mainstem.placement.state.catalogue import Catalogue

STEP_MS = 500
NODES = tuple(NodeId(number) for number in (1, 2, 3, 4, 5))
Held = tuple[Any, int, NodeId, str]


class SimulatedCluster:
    """Nodes that do what they are told, one act after the other."""

    def __init__(self, founders: int) -> None:
        self.catalogue = Catalogue()
        self.placing = ClusterReconciler(
            ReconcilerSettings(replace_after_ms=5_000, rebalance_after_ms=3_000, report_ms=2_000)
        )
        self.now_ms = 0
        self.requests = 0
        self.up: set[NodeId] = set()
        self.disks = {node: f"disk-{node}" for node in NODES}
        self.held: set[Held] = set()
        for node in NODES[:founders]:
            self.start(node)
        for number, factor in enumerate((1, 2, 3)):
            topic = TopicId(bytes([number + 1]) * 16)
            replicas = min(factor, founders)
            self.do(commands.CreateTopic(topic, f"t{number}", 2, replicas, internal=number == 2))

    def streams(self) -> list[Stream]:
        return [stream for topic in self.catalogue.topics() for stream in topic.streams]

    def do(self, command: Command[Any]) -> bool:
        try:
            decision = self.catalogue.decide(command, self.now_ms)
        except MainstemError:
            return False
        for fact in decision.facts:
            self.catalogue.replay(fact)
            if isinstance(fact, replication.ReplicaDropped):
                key = (fact.stream, fact.index, fact.node, self.disks[fact.node])
                self.held.discard(key)
        return True

    # What happens to nodes

    def start(self, node: NodeId) -> None:
        incarnation = self.catalogue.incarnation(node) + 1
        self.do(commands.RegisterNode(Node(node, "h", 1), incarnation, self.disks[node]))
        self.up.add(node)
        alone = [s for s in self.catalogue.streams_of(node) if s.last.replicas == (node,)]
        ends = tuple(self.end_of(stream, 0) for stream in alone)
        self.do(commands.RestartStreams(node, incarnation, ends))

    def kill(self, node: NodeId) -> None:
        self.up.discard(node)

    def blank(self, node: NodeId) -> None:
        """The disk is replaced, unless that alone would lose records."""
        for stream in self.streams():
            last = stream.last
            if last.replicas == (node,) or (node in last.replicas and stream.is_taken_over):
                return
            for known in stream.ranges[:-1]:
                if node in known.holders and len(known.holders) < 2:
                    return
        self.kill(node)
        self.fence_dead()
        self.disks[node] += "'"
        self.start(node)

    def act(self, act: str, node: NodeId, times: int) -> None:
        if act == "kill":
            self.kill(node)
        elif act == "start":
            self.kill(node)
            self.fence_dead()
            self.start(node)
        elif act == "blank" and node in self.up:
            self.blank(node)
        elif act == "drain":
            self.do(replication.DrainNode(node))
        elif act == "undrain":
            self.do(replication.UndrainNode(node))
        elif act == "live":
            for _ in range(times):
                self.live()

    # What nodes do

    def live(self) -> None:
        """Half a second of everybody's life."""
        self.now_ms += STEP_MS
        self.fence_dead()
        steps = self.placing.step(self.catalogue, self.now_ms)
        for command in steps.commands:
            self.do(command)
        for node, orders in steps.orders.items():
            for order in orders if node in self.up else ():
                self.follow(order)
        for stream in self.streams():
            self.take_over(stream)
            for known in stream.ranges[:-1]:
                self.complete(stream, known)
        self.check()

    def fence_dead(self) -> None:
        for known in list(self.catalogue.nodes()):
            if known.node.id not in self.up:
                self.do(replication.FenceNode(known.node.id, known.incarnation))

    def follow(self, order: RollOrder) -> None:
        stream = self.catalogue.stream(order.stream)
        if stream and (stream.epoch, stream.last.index) == (order.epoch, order.index):
            self.seal(stream, 3, new_writer=order.new_writer)

    def take_over(self, stream: Stream) -> None:
        last = stream.last
        if not stream.is_taken_over or stream.writer not in self.up:
            return
        clean = self.clean(last)
        # When all have answered, and too few still have their disks, what there is has to do.
        if len(clean) >= len(last.replicas) - last.acks_needed + 1 or (
            clean and self.up.issuperset(last.replicas)
        ):
            self.seal(stream, 2)

    def bring_everybody_back(self) -> None:
        """No node is down or drained any more."""
        for node in NODES:
            self.do(replication.UndrainNode(node))
            if node not in self.up:
                self.start(node)

    def clean(self, known: Range) -> list[NodeId]:
        return [
            node
            for node in known.replicas
            if node in self.up and known.directory_of(node) in (None, self.disks[node])
        ]

    def seal(self, stream: Stream, count: int, new_writer: NodeId | None = None) -> None:
        self.requests += 1
        done = tuple(self.clean(stream.last))
        end = self.end_of(stream, count)
        index = stream.last.index
        if self.do(commands.SealAndCreate(f"r{self.requests}", end, done, new_writer=new_writer)):
            self.held |= {(stream.id, index, node, self.disks[node]) for node in done}

    def complete(self, stream: Stream, known: Range) -> None:
        for node in (*known.replicas, *known.replicating):
            is_source = any(n in self.up for n in known.holders if n != node)
            key = (stream.id, known.index, node, self.disks[node])
            if node in self.up and (key in self.held or (is_source and node in known.replicating)):
                self.held.add(key)
                disk = self.disks[node]
                self.do(replication.ReplicaDone(stream.id, known.index, node, disk))

    def end_of(self, stream: Stream, count: int) -> commands.RangeEnd:
        end = Offset(stream.last.start + count)
        return commands.RangeEnd(stream.id, stream.epoch, stream.last.index, end)

    # What must hold

    def check(self) -> None:
        for stream in self.streams():
            assert chain.flaw(stream) is None
            if stream.writer != NO_NODE:
                assert self.catalogue.is_live(stream.writer)
                assert stream.writer in stream.last.replicas
            for known in stream.ranges[:-1]:
                for node in known.done:
                    assert (stream.id, known.index, node, self.disks[node]) in self.held
                assert known.holders, "somebody has every range"

    def check_rest(self) -> None:
        steps = self.placing.step(self.catalogue, self.now_ms + STEP_MS)
        assert not steps.commands
        assert not steps.orders
        leaving = {k.node.id for k in self.catalogue.nodes() if k.draining}
        for stream in self.streams():
            assert stream.writer == stream.wanted[0]
            assert set(stream.last.replicas) == set(stream.wanted)
            assert not set(stream.wanted) & leaving
            for known in stream.ranges[:-1]:
                assert set(known.holders) == set(known.replicas) == set(stream.wanted)
                assert not known.replicating


acts = st.tuples(
    st.sampled_from(["kill", "start", "blank", "drain", "undrain", "live", "live", "live"]),
    st.sampled_from(NODES),
    st.integers(1, 12),
)


@settings(max_examples=120, deadline=None)
@given(founders=st.integers(1, 5), course=st.lists(acts, max_size=25))
@example(founders=5, course=[("blank", NodeId(4), 1), ("blank", NodeId(3), 1)])
def test_everything_comes_to_rest_where_it_is_wanted(
    founders: int, course: list[tuple[str, NodeId, int]]
) -> None:
    cluster = SimulatedCluster(founders)
    for act, node, times in course:
        cluster.act(act, node, times)
    cluster.bring_everybody_back()
    cluster.do(replication.DrainNode(NODES[0]))
    for _ in range(300):
        cluster.live()
    cluster.check_rest()


@settings(max_examples=40, deadline=None)
@given(
    founders=st.integers(3, 5),
    course=st.lists(acts, max_size=20),
    leaving=st.sampled_from(NODES),
    steps=st.integers(0, 12),
)
def test_a_node_that_dies_while_it_is_drained_ends_up_with_nothing(
    founders: int, course: list[tuple[str, NodeId, int]], leaving: NodeId, steps: int
) -> None:
    cluster = SimulatedCluster(founders)
    for act, node, times in course:
        cluster.act(act, node, times)
    cluster.bring_everybody_back()
    for _ in range(100):
        cluster.live()
    cluster.do(replication.DrainNode(leaving))
    for _ in range(steps):
        cluster.live()
    cluster.kill(leaving)
    for _ in range(150):
        cluster.live()
    for stream in cluster.streams():
        for known in stream.ranges:
            # What nobody else has is not given up: its node may come back.
            if set(known.replicas) != {leaving}:
                assert leaving not in (*known.replicas, *known.replicating)
