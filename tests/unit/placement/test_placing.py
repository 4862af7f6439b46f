"""What the placement leader says about a cluster, step by step."""

from typing import Any

from mainstem.model.ids import NodeId, Offset, RangeIndex, TopicId
from mainstem.model.metadata import Node, Stream
from mainstem.placement.changes import commands as records
from mainstem.placement.changes import replication_commands as replication
from mainstem.placement.changes.command_and_fact import Command
from mainstem.placement.planning.reconciler import (
    ClusterReconciler,
    ReconcilerSettings,
    ReconcileSteps,
)
from mainstem.placement.state.catalogue import Catalogue

ONE, TWO, THREE, FOUR = (NodeId(number) for number in (1, 2, 3, 4))
TOPIC = TopicId(bytes(16))
STEP_MS = 500


class Office:
    """A catalogue, the leader's mind and a clock."""

    def __init__(self, *nodes: NodeId, **settings: Any) -> None:
        self.catalogue = Catalogue()
        self.placing = ClusterReconciler(
            ReconcilerSettings(**{"rebalance_after_ms": None, **settings})
        )
        self.now_ms = 0
        for node in nodes:
            self.register(node)

    def do(self, command: Command[Any]) -> Any:
        facts, reply = self.catalogue.decide(command, self.now_ms)
        for fact in facts:
            self.catalogue.replay(fact)
        return reply

    def register(self, node: NodeId, disk: str = "") -> None:
        incarnation = self.catalogue.incarnation(node) + 1
        directory = disk or f"disk-{node}"
        self.do(records.RegisterNode(Node(node, "h", 1), incarnation, directory))

    def fence(self, node: NodeId) -> None:
        self.do(replication.FenceNode(node, self.catalogue.incarnation(node)))

    def create(self, *replicas: NodeId, internal: bool = False, **configs: str) -> Stream:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        topic = self.do(
            records.CreateTopic(TOPIC, "t", 1, 1, named, assignments=(replicas,), internal=internal)
        )
        stream: Stream = topic.streams[0]
        return stream

    def seal(self, end: int, *done: NodeId, **more: Any) -> Stream:
        stream = self.stream
        at = records.RangeEnd(stream.id, stream.epoch, stream.last.index, Offset(end))
        after: Stream = self.do(records.SealAndCreate(f"until {end}", at, done, **more))
        return after

    @property
    def stream(self) -> Stream:
        return self.catalogue.need_topic(TOPIC).streams[0]

    def step(self, after_ms: int = STEP_MS) -> ReconcileSteps:
        self.now_ms += after_ms
        return self.placing.step(self.catalogue, self.now_ms)

    def orders(self, until_ms: int) -> list[tuple[int, NodeId, NodeId | None]]:
        """When which writer is told to roll, and to whom, while nobody follows."""
        told = []
        while self.now_ms < until_ms:
            for node, orders in self.step().orders.items():
                told += [(self.now_ms, node, order.new_writer) for order in orders]
        return told


def test_a_cluster_at_rest_is_left_alone() -> None:
    office = Office(ONE, TWO, THREE)
    office.create(ONE, TWO, THREE)
    assert office.orders(until_ms=60_000) == []
    assert office.step().commands == []


def test_a_node_alone_is_never_looked_at() -> None:
    office = Office(ONE)
    office.create(ONE)
    assert office.step() == ReconcileSteps()


def test_a_writer_is_told_at_once_to_go_on_without_a_dead_replica() -> None:
    office = Office(ONE, TWO, THREE)
    office.create(ONE, TWO, THREE)
    office.step()
    office.fence(THREE)
    assert office.orders(until_ms=1_500) == [(1_000, ONE, None)]


def test_an_order_that_was_not_followed_is_repeated() -> None:
    office = Office(ONE, TWO, THREE, repeat_ms=2_000)
    office.create(ONE, TWO, THREE)
    office.fence(THREE)
    assert [at for at, _, _ in office.orders(until_ms=5_000)] == [500, 2_500, 4_500]


def test_a_replica_that_was_left_behind_is_readmitted_more_and_more_slowly() -> None:
    office = Office(ONE, TWO, THREE, readmit_ms=1_000)
    office.create(ONE, TWO, THREE)
    waits = []
    for end in range(1, 5):
        office.seal(end, ONE, TWO, exclude=(THREE,))
        began = office.now_ms
        while not office.step().orders:
            pass
        waits.append(office.now_ms - began)
    assert waits == sorted(waits)
    assert waits[-1] >= 8 * waits[0] - STEP_MS * 8
    office.register(FOUR)
    office.seal(50, ONE, TWO, exclude=(THREE, FOUR))
    assert office.orders(until_ms=office.now_ms + 3_000)


def test_the_preferred_writer_gets_its_stream_back_when_it_has_everything() -> None:
    office = Office(ONE, TWO)
    stream = office.create(ONE, TWO)
    office.fence(ONE)
    office.seal(5, TWO)
    office.register(ONE)
    office.seal(9, TWO)
    assert office.stream.last.replicas == (ONE, TWO)
    assert office.orders(until_ms=5_000) == []
    for known in office.stream.ranges[:-1]:
        office.do(replication.CopyRange(stream.id, known.index, ONE))
        office.do(replication.ReplicaDone(stream.id, known.index, ONE, "disk-1"))
    assert [(node, successor) for _, node, successor in office.orders(until_ms=9_000)] == [
        (TWO, ONE)
    ]


def test_a_missing_copy_is_made_and_a_recent_replica_has_time_to_report() -> None:
    office = Office(ONE, TWO, THREE, report_ms=2_000)
    stream = office.create(ONE, TWO, THREE)
    office.seal(5, ONE, TWO)
    assert office.step().commands == []
    assert office.step(after_ms=2_000).commands == [
        replication.CopyRange(stream.id, RangeIndex(0), THREE)
    ]


def test_a_copy_is_dropped_only_when_everybody_wanted_has_it() -> None:
    office = Office(ONE, TWO, THREE)
    stream = office.create(ONE, TWO)
    office.seal(5, ONE, TWO)
    office.do(replication.ReassignPartitions(((stream.id, (ONE, THREE)),)))
    copy = replication.CopyRange(stream.id, RangeIndex(0), THREE)
    assert office.step().commands == [copy]
    office.do(copy)
    assert office.step().commands == []
    office.do(replication.ReplicaDone(stream.id, RangeIndex(0), THREE, "disk-3"))
    assert office.step().commands == [replication.DropReplica(stream.id, RangeIndex(0), TWO)]


def test_only_so_many_copies_are_made_at_a_time() -> None:
    office = Office(ONE, TWO, copies_per_node_max=2)
    stream = office.create(ONE)
    for end in range(1, 7):
        office.seal(end)
    office.do(replication.ReassignPartitions(((stream.id, (ONE, TWO)),)))
    commands = office.step().commands
    assert len(commands) == 2
    for command in commands:
        office.do(command)
    assert office.step().commands == []


def test_internal_topics_get_more_replicas_when_there_are_nodes() -> None:
    office = Office(ONE)
    stream = office.create(ONE, internal=True)
    office.register(TWO)
    [move] = office.step().commands
    assert move == replication.ReassignPartitions(((stream.id, (ONE, TWO)),), keep_factor=True)
    office.do(move)
    office.register(THREE)
    office.register(FOUR)
    office.do(office.step().commands[0])
    assert len(office.stream.wanted) == 3
    assert office.stream.wanted[:2] == (ONE, TWO)


def test_a_node_that_is_down_too_long_is_replaced_and_one_that_is_back_is_not() -> None:
    office = Office(ONE, TWO, THREE, FOUR, replace_after_ms=10_000)
    stream = office.create(ONE, TWO, THREE)
    office.fence(THREE)
    for _ in range(19):
        assert office.step().commands == []
    office.register(THREE)
    assert office.step(after_ms=60_000).commands == []
    office.fence(THREE)
    office.step()
    [move] = office.step(after_ms=10_000).commands
    wanted = (ONE, TWO, FOUR)
    assert move == replication.ReassignPartitions(((stream.id, wanted),), keep_factor=True)


def test_what_only_a_dead_node_has_stays_there() -> None:
    office = Office(ONE, TWO, replace_after_ms=1_000)
    office.create(ONE)
    office.fence(ONE)
    office.step()
    assert office.step(after_ms=5_000).commands == []


def test_a_draining_node_is_replaced_or_left_out_and_the_factor_is_remembered() -> None:
    office = Office(ONE, TWO, THREE)
    office.create(ONE, TWO, THREE)
    office.do(replication.DrainNode(ONE))
    office.do(office.step().commands[0])
    assert list(office.stream.wanted) == [TWO, THREE]
    assert office.catalogue.need_topic(TOPIC).replicas_wanted == 3
    office.register(FOUR)
    office.do(office.step().commands[0])
    assert list(office.stream.wanted) == [TWO, THREE, FOUR]


def test_an_offline_stream_of_a_topic_that_allows_it_is_elected_uncleanly() -> None:
    office = Office(ONE, TWO, THREE)
    stream = office.create(ONE, TWO, unclean_leader_election_enable="true")
    office.seal(5, ONE, TWO, exclude=(TWO,), replicas=(ONE,))
    office.fence(ONE)
    assert office.step().commands[0] == replication.ElectWriters((stream.id,), unclean=True)


def test_an_empty_node_is_given_streams_after_a_while() -> None:
    office = Office(ONE, rebalance_after_ms=2_000)
    office.do(records.CreateTopic(TOPIC, "t", 12, 1))
    office.register(TWO)
    assert office.step().commands == []
    [move] = office.step(after_ms=2_000).commands
    assert isinstance(move, replication.ReassignPartitions)
    assert len(move.moves) in (5, 6)
    assert all(target == (TWO,) for _, target in move.moves)


def test_a_new_leader_is_patient_again() -> None:
    office = Office(ONE, TWO, THREE, replace_after_ms=1_000)
    office.create(ONE, TWO)
    office.fence(TWO)
    office.step()
    office.placing.begin()
    assert not office.step(after_ms=5_000).commands
    assert office.step(after_ms=1_000).commands
