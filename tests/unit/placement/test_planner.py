"""Where streams are placed: spread over machines and racks, even, and stable when nodes come."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from mainstem.model.ids import NodeId, PartitionIndex, StreamId, TopicId
from mainstem.model.metadata import Node
from mainstem.model.topic_name import QUEUE_DATA_TOPIC, QUEUES_TOPIC
from mainstem.placement.changes import commands
from mainstem.placement.changes import replication_commands as replication
from mainstem.placement.changes.command_and_fact import Command
from mainstem.placement.planning import balancing, replica_placement
from mainstem.placement.planning.targets import Targets
from mainstem.placement.state.catalogue import Catalogue

TOPIC = TopicId(bytes(range(16)))


def cluster(nodes: Sequence[Node]) -> Catalogue:
    catalogue = Catalogue()
    for node in nodes:
        run(catalogue, commands.RegisterNode(node, 1, f"disk-{node.id}"))
    return catalogue


def run(catalogue: Catalogue, command: Command[Any]) -> None:
    for fact in catalogue.decide(command, 0).facts:
        catalogue.replay(fact)


def plain(*ids: int) -> list[Node]:
    return [Node(NodeId(number), "h", 1) for number in ids]


def placed(catalogue: Catalogue, partitions: int, factor: int) -> list[tuple[NodeId, ...]]:
    run(catalogue, commands.CreateTopic(TOPIC, "t", partitions, factor))
    topic = catalogue.topic("t")
    assert topic is not None
    return [stream.wanted for stream in topic.streams]


def test_every_node_writes_and_holds_its_share() -> None:
    sets = placed(cluster(plain(1, 2, 3, 4, 5)), partitions=100, factor=3)
    writes = Counter(replicas[0] for replicas in sets)
    held = Counter(node for replicas in sets for node in replicas)
    assert set(writes.values()) == {20}
    assert max(held.values()) - min(held.values()) <= 4


def test_a_topic_is_spread_even_where_others_left_some_nodes_with_more_room() -> None:
    catalogue = cluster(plain(1, 2, 3))
    uneven = tuple((NodeId(1), NodeId(3)) for _ in range(7))
    run(catalogue, commands.CreateTopic(TopicId(bytes(16)), "uneven", 7, 2, assignments=uneven))
    for partitions in (3, 4, 5, 6):
        sets = placed(catalogue.fork(), partitions, factor=3)
        writes = Counter(replicas[0] for replicas in sets)
        assert {writes[NodeId(node)] for node in (1, 2, 3)} <= {
            partitions // 3,
            -(-partitions // 3),
        }
    placed(catalogue, partitions=1, factor=3)
    run(catalogue, commands.AddPartitions(TOPIC, 1, 3))
    topic = catalogue.topic("t")
    assert topic is not None
    assert {stream.wanted[0] for stream in topic.streams} == {1, 2, 3}


def test_replicas_are_on_different_racks_and_machines_as_long_as_there_are() -> None:
    nodes = [
        Node(NodeId(at), "h", 1, rack=f"rack-{at % 3}", machine=f"machine-{at // 2}")
        for at in range(12)
    ]
    where = {node.id: (node.rack, node.machine) for node in nodes}
    for replicas in placed(cluster(nodes), partitions=60, factor=3):
        assert len({where[node][0] for node in replicas}) == 3
        assert len({where[node][1] for node in replicas}) == 3


def test_a_machine_counts_more_than_a_rack() -> None:
    nodes = [
        Node(NodeId(1), "h", 1, rack="a", machine="m"),
        Node(NodeId(2), "h", 1, rack="b", machine="m"),
        Node(NodeId(3), "h", 1, rack="a", machine="n"),
    ]
    for replicas in placed(cluster(nodes), partitions=12, factor=2):
        assert 3 in replicas


def test_fenced_nodes_are_taken_only_when_there_is_no_other_way_and_draining_ones_never() -> None:
    catalogue = cluster(plain(1, 2, 3, 4))
    run(catalogue, replication.FenceNode(NodeId(2), 1))
    run(catalogue, replication.DrainNode(NodeId(4)))
    streams = [StreamId(TOPIC, PartitionIndex(at)) for at in range(9)]
    assert all(set(r) == {1, 3} for r in replica_placement.plan(catalogue, streams, 2))
    for replicas in replica_placement.plan(catalogue, streams, 3):
        assert set(replicas) == {1, 2, 3}
        assert replicas[-1] == 2


def test_a_node_that_joins_takes_its_share_and_nothing_else_moves() -> None:
    catalogue = cluster(plain(1, 2, 3))
    before = placed(catalogue, partitions=60, factor=2)
    run(catalogue, commands.RegisterNode(Node(NodeId(4), "h", 1), 1, "disk-4"))
    moves = dict(balancing.moves(catalogue, limit=1_000))
    run(catalogue, replication.ReassignPartitions(tuple(moves.items())))
    topic = catalogue.topic("t")
    assert topic is not None
    held = Counter(node for stream in topic.streams for node in stream.wanted)
    assert abs(held[NodeId(4)] - 30) <= 3
    for stream, old in zip(topic.streams, before, strict=True):
        gained = set(stream.wanted) - set(old)
        assert gained <= {4}
        assert len(gained) <= 1
    assert len(moves) == held[NodeId(4)]


def test_writers_are_balanced_among_those_that_hold_a_stream() -> None:
    catalogue = cluster(plain(1, 2, 3))
    command = commands.CreateTopic(TOPIC, "t", 9, 3, assignments=((1, 2, 3),) * 9)  # type: ignore[arg-type]
    run(catalogue, command)
    moves = balancing.moves(catalogue, limit=100)
    run(catalogue, replication.ReassignPartitions(tuple(moves)))
    topic = catalogue.topic("t")
    assert topic is not None
    writes = Counter(stream.wanted[0] for stream in topic.streams)
    assert max(writes.values()) - min(writes.values()) <= 1
    assert balancing.moves(catalogue, limit=100) == []


def test_a_balanced_cluster_moves_nothing() -> None:
    catalogue = cluster(plain(1, 2, 3))
    placed(catalogue, partitions=30, factor=2)
    assert balancing.moves(catalogue, limit=100) == []


def test_a_stream_likes_nodes_in_an_order_that_others_do_not_change() -> None:
    for partition in range(50):
        score = replica_placement.scores(StreamId(TOPIC, PartitionIndex(partition)))
        few = sorted(plain(1, 2, 3), key=score)
        many = sorted(plain(1, 2, 3, 4, 5), key=score)
        assert [node for node in many if node.id <= 3] == few


def test_of_nodes_that_have_room_the_less_busy_are_taken() -> None:
    catalogue = cluster(plain(1, 2, 3, 4, 5))
    catalogue.busy = lambda node: 3 if node <= 3 else 0
    [replicas] = placed(catalogue.fork(), partitions=1, factor=2)
    assert set(replicas) == {4, 5}


def test_however_busy_a_node_is_it_gets_its_share_and_racks_count_more() -> None:
    nodes = [Node(NodeId(at), "h", 1, rack=f"rack-{at % 2}") for at in range(4)]
    catalogue = cluster(nodes)
    catalogue.busy = lambda node: node
    sets = placed(catalogue, partitions=40, factor=2)
    assert set(Counter(replicas[0] for replicas in sets).values()) == {10}
    assert all(a % 2 != b % 2 for a, b in sets)


def test_a_stream_that_is_placed_does_not_move_because_of_loads() -> None:
    catalogue = cluster(plain(1, 2, 3, 4, 5))
    placed(catalogue, partitions=10, factor=3)
    topic = catalogue.topic("t")
    assert topic is not None
    before = [replica_placement.next_set(catalogue, topic, stream, ()) for stream in topic.streams]
    catalogue.become(catalogue.state())
    catalogue.busy = lambda node: node
    assert [
        replica_placement.next_set(catalogue, topic, stream, ()) for stream in topic.streams
    ] == before
    assert balancing.moves(catalogue, limit=100) == []


def test_what_is_known_of_loads_outlives_a_snapshot() -> None:
    catalogue = cluster(plain(1, 2))
    catalogue.busy = lambda _node: 7
    catalogue.become(catalogue.state())
    assert catalogue.busy(NodeId(1)) == catalogue.fork().busy(NodeId(2)) == 7


def queues_on(catalogue: Catalogue, *nodes: int) -> None:
    place = tuple(map(NodeId, nodes))
    for number, name in enumerate((QUEUES_TOPIC, QUEUE_DATA_TOPIC, "exchange"), 1):
        topic = TopicId(bytes([number] * 16))
        command = commands.CreateTopic(
            topic, name, 8, len(place), {}, internal=number < 3, assignments=(place,) * 8
        )
        run(catalogue, command)


def test_streams_that_one_node_has_to_write_are_not_torn_apart_for_balance() -> None:
    catalogue = cluster(plain(1, 2, 3))
    queues_on(catalogue, 1, 2, 3)
    assert balancing.moves(catalogue, limit=100) == []
    run(catalogue, commands.CreateTopic(TOPIC, "t", 9, 3, {}, assignments=(spread_out(),) * 9))
    moved = dict(balancing.moves(catalogue, limit=100))
    assert {stream.topic for stream in moved} <= {TOPIC}


def spread_out() -> tuple[NodeId, ...]:
    return (NodeId(1), NodeId(3), NodeId(2))


def test_streams_that_one_node_has_to_write_get_their_further_copies_in_one_order() -> None:
    catalogue = cluster(plain(1, 2, 3, 4, 5))
    queues_on(catalogue, 1)
    targets = Targets(catalogue, lambda _node: False)
    found = {
        targets.of(topic, stream)
        for topic in catalogue.topics()
        for stream in topic.streams
        if topic.internal
    }
    assert len(found) == 1
    [wanted] = found
    assert len(wanted) == 3
