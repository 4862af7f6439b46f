"""Stories of a catalogue with several nodes: seals, elections, copies, nodes that come and go."""

from typing import Any, TypeVar

import msgspec
import pytest

from mainstem.model.errors import ErrorCode, Fenced, InvalidRequest, MainstemError
from mainstem.model.ids import (
    NO_NODE,
    Epoch,
    NodeId,
    Offset,
    PartitionIndex,
    RangeIndex,
    StreamId,
    TopicId,
)
from mainstem.model.metadata import Node, Stream
from mainstem.placement.changes import commands
from mainstem.placement.changes import replication_commands as replication
from mainstem.placement.changes.command_and_fact import Command
from mainstem.placement.changes.commands import AnyFact, CatalogueState, RangeEnd
from mainstem.placement.planning import election as electing
from mainstem.placement.state import cluster_view
from mainstem.placement.state.catalogue import Catalogue

ReplyT = TypeVar("ReplyT")
ONE, TWO, THREE, FOUR = (NodeId(number) for number in (1, 2, 3, 4))
TOPIC = TopicId(bytes(16))
DELETED = StreamId(TopicId(bytes([1]) * 16), PartitionIndex(0))


def cluster(count: int = 3) -> Catalogue:
    catalogue = Catalogue()
    for number in range(1, count + 1):
        register(catalogue, NodeId(number))
    return catalogue


def do(catalogue: Catalogue, command: Command[ReplyT]) -> ReplyT:
    decision = catalogue.decide(command, 1_000)
    for fact in decision.facts:
        catalogue.replay(msgspec.json.decode(msgspec.json.encode(fact), type=AnyFact))
    return decision.reply


def refused(catalogue: Catalogue, command: Command[Any]) -> MainstemError:
    with pytest.raises(MainstemError) as refusal:
        catalogue.decide(command, 1_000)
    return refusal.value


def register(catalogue: Catalogue, node: NodeId, disk: str = "") -> None:
    incarnation = catalogue.incarnation(node) + 1
    do(catalogue, commands.RegisterNode(Node(node, "h", 1), incarnation, disk or f"disk-{node}"))


def create(catalogue: Catalogue, *replicas: NodeId, **configs: str) -> Stream:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    command = commands.CreateTopic(TOPIC, "t", 1, 1, named, assignments=(replicas,))
    return do(catalogue, command).streams[0]


def held(catalogue: Catalogue) -> Stream:
    return catalogue.need_topic(TOPIC).streams[0]


def fence(catalogue: Catalogue, node: NodeId) -> None:
    do(catalogue, replication.FenceNode(node, catalogue.incarnation(node), "it is dead"))


def seal(catalogue: Catalogue, end: int, *done: NodeId, **more: Any) -> Stream:
    stream = held(catalogue)
    at = RangeEnd(stream.id, stream.epoch, stream.last.index, Offset(end))
    return do(catalogue, commands.SealAndCreate(f"until {end} {more}", at, done, **more))


# Seals


def test_a_range_knows_its_disks_and_how_many_acknowledge() -> None:
    stream = create(cluster(), ONE, TWO, THREE, min_insync_replicas="3")
    assert stream.last.directories == ("disk-1", "disk-2", "disk-3")
    assert stream.last.directory_of(TWO) == "disk-2"
    assert (stream.last.acks, stream.last.acks_needed) == (3, 3)


def test_a_majority_acknowledges_unless_the_topic_asks_for_more() -> None:
    stream = create(cluster(), ONE, TWO, THREE)
    assert (stream.last.acks, stream.last.acks_needed) == (0, 2)


def test_the_next_set_leaves_out_the_excluded_and_takes_others_in() -> None:
    catalogue = cluster(4)
    create(catalogue, ONE, TWO, THREE)
    stream = seal(catalogue, 10, ONE, TWO, exclude=(THREE,))
    assert stream.last.replicas == (ONE, TWO, FOUR)
    assert stream.ranges[0].done == (ONE, TWO)
    assert (stream.writer, stream.epoch) == (ONE, 0)


def test_the_next_set_shrinks_when_nobody_else_is_there_and_grows_back() -> None:
    catalogue = cluster()
    create(catalogue, ONE, TWO, THREE)
    fence(catalogue, THREE)
    assert seal(catalogue, 10, ONE, TWO).last.replicas == (ONE, TWO)
    register(catalogue, THREE)
    assert seal(catalogue, 20, ONE, TWO).last.replicas == (ONE, TWO, THREE)


def test_neighbours_on_the_same_nodes_are_joined_in_whatever_order_they_are_named() -> None:
    catalogue = cluster(4)
    create(catalogue, ONE, TWO, THREE)
    seal(catalogue, 10, ONE, TWO, THREE, replicas=(ONE, THREE, TWO))
    seal(catalogue, 20, ONE, TWO, THREE, replicas=(ONE, TWO, FOUR))
    stream = seal(catalogue, 30, ONE, TWO)
    of_others = commands.MergeRanges(
        stream.id, stream.epoch, RangeIndex(0), RangeIndex(2), 1, 5, (ONE, TWO)
    )
    assert refused(catalogue, of_others).code is ErrorCode.INVALID_REQUEST
    joined = do(catalogue, msgspec.structs.replace(of_others, last=RangeIndex(1)))
    assert [(one.index, one.end) for one in joined.ranges] == [(0, 20), (2, 30), (3, None)]


def test_a_set_is_never_smaller_than_the_topic_allows() -> None:
    catalogue = cluster()
    create(catalogue, ONE, TWO, THREE, min_insync_replicas="2")
    fence(catalogue, TWO)
    fence(catalogue, THREE)
    assert seal(catalogue, 10, ONE).last.replicas == (ONE, TWO)


def test_a_stream_is_handed_over_in_the_same_step() -> None:
    catalogue = cluster()
    create(catalogue, ONE, TWO, THREE)
    stream = seal(catalogue, 10, ONE, TWO, new_writer=TWO)
    assert (stream.writer, stream.epoch, stream.last.epoch) == (TWO, 1, 1)
    assert not stream.is_taken_over
    assert isinstance(refused_seal(catalogue, new_writer=FOUR), InvalidRequest)


def refused_seal(catalogue: Catalogue, **more: Any) -> MainstemError:
    stream = held(catalogue)
    at = RangeEnd(stream.id, stream.epoch, stream.last.index, stream.last.start)
    return refused(catalogue, commands.SealAndCreate("refused", at, **more))


def test_only_replicas_can_be_done() -> None:
    catalogue = cluster(4)
    create(catalogue, ONE, TWO)
    assert isinstance(refused_seal(catalogue, done=(FOUR,)), InvalidRequest)


# Elections


def test_a_fenced_writer_is_followed_by_the_next_live_replica() -> None:
    catalogue = cluster()
    stream = create(catalogue, ONE, TWO, THREE)
    fence(catalogue, ONE)
    after = held(catalogue)
    assert (after.writer, after.epoch, after.is_taken_over) == (TWO, 1, True)
    assert after.ranges == stream.ranges
    end = RangeEnd(stream.id, stream.epoch, stream.last.index, Offset(5))
    late = refused(catalogue, commands.SealAndCreate("late", end))
    assert isinstance(late, Fenced)
    assert seal(catalogue, 7, TWO, THREE).last.epoch == 1


def test_a_new_stream_whose_first_replica_is_down_has_another_writer() -> None:
    catalogue = cluster()
    fence(catalogue, ONE)
    stream = create(catalogue, ONE, TWO, THREE)
    assert stream == held(catalogue)
    assert (stream.writer, stream.wanted[0]) == (TWO, ONE)


def test_who_has_more_of_the_older_ranges_is_elected_first() -> None:
    catalogue = cluster()
    create(catalogue, ONE, TWO, THREE)
    seal(catalogue, 10, ONE, THREE)
    fence(catalogue, ONE)
    assert held(catalogue).writer == THREE


def test_without_a_live_replica_a_stream_is_offline_until_one_is_back() -> None:
    catalogue = cluster()
    create(catalogue, ONE, TWO)
    fence(catalogue, TWO)
    fence(catalogue, ONE)
    assert (held(catalogue).writer, held(catalogue).epoch) == (NO_NODE, 1)
    assert isinstance(refused_seal(catalogue), Fenced)
    register(catalogue, TWO)
    assert (held(catalogue).writer, held(catalogue).epoch) == (TWO, 2)


def test_a_restarted_writer_gives_its_streams_to_others() -> None:
    catalogue = cluster()
    create(catalogue, ONE, TWO)
    register(catalogue, ONE)
    assert (held(catalogue).writer, held(catalogue).epoch) == (TWO, 1)


def test_a_restarted_writer_without_others_has_a_new_epoch() -> None:
    catalogue = cluster()
    create(catalogue, ONE, TWO)
    fence(catalogue, TWO)
    register(catalogue, ONE)
    assert (held(catalogue).writer, held(catalogue).epoch) == (ONE, 1)


def test_a_restarted_writer_of_what_others_held_before_has_a_new_epoch() -> None:
    catalogue = cluster(2)
    create(catalogue, ONE, TWO)
    fence(catalogue, TWO)
    stream = seal(catalogue, 10, ONE)
    assert stream.last.replicas == (ONE,)
    register(catalogue, ONE)
    assert (held(catalogue).writer, held(catalogue).is_taken_over) == (ONE, True)


def test_a_restarted_node_seals_what_only_it_ever_held_by_itself() -> None:
    catalogue = cluster(2)
    create(catalogue, ONE)
    fence(catalogue, ONE)
    register(catalogue, ONE)
    stream = held(catalogue)
    assert (stream.writer, stream.epoch) == (ONE, 2)
    register(catalogue, ONE)
    assert held(catalogue) == stream
    end = RangeEnd(stream.id, stream.epoch, stream.last.index, Offset(7))
    [after] = do(catalogue, commands.RestartStreams(ONE, 3, (end,)))
    assert (after.epoch, after.last.epoch, after.is_taken_over) == (3, 3, False)


def test_a_blank_disk_has_nothing_and_is_not_elected() -> None:
    catalogue = cluster()
    create(catalogue, ONE, TWO)
    seal(catalogue, 10, ONE, TWO)
    fence(catalogue, TWO)
    register(catalogue, ONE, disk="another")
    stream = held(catalogue)
    assert stream.writer == NO_NODE
    assert stream.ranges[0].done == (TWO,)
    register(catalogue, TWO)
    assert held(catalogue).writer == TWO


def test_a_fenced_node_that_lives_on_gets_what_nobody_else_can_write() -> None:
    catalogue = cluster()
    create(catalogue, ONE)
    fence(catalogue, ONE)
    assert held(catalogue).writer == NO_NODE
    do(catalogue, replication.UnfenceNode(ONE, 1))
    assert (held(catalogue).writer, held(catalogue).epoch) == (ONE, 2)


def test_a_late_fence_does_not_hit_the_next_process() -> None:
    catalogue = cluster()
    register(catalogue, ONE)
    assert isinstance(refused(catalogue, replication.FenceNode(ONE, 1)), Fenced)
    assert isinstance(refused(catalogue, replication.UnfenceNode(ONE, 1)), Fenced)


def test_an_election_takes_a_stream_from_nobody_that_writes_it() -> None:
    catalogue = cluster()
    stream = create(catalogue, ONE, TWO, THREE)
    fence(catalogue, ONE)
    seal(catalogue, 10, TWO, THREE)
    register(catalogue, ONE)
    seal(catalogue, 20, TWO, THREE)
    command = replication.ElectWriters((stream.id,))
    assert do(catalogue, command) == ()
    for index in (0, 1):
        done = replication.ReplicaDone(stream.id, RangeIndex(index), ONE, "disk-1")
        if index == 1:
            do(catalogue, replication.CopyRange(stream.id, RangeIndex(index), ONE))
        do(catalogue, done)
    assert electing.preferred(catalogue, held(catalogue)) == ONE
    assert do(catalogue, command) == (), "its writer hands it over, and is not fenced"
    assert held(catalogue).writer == TWO


def test_an_unclean_election_takes_any_live_node_that_has_something() -> None:
    catalogue = cluster()
    stream = create(catalogue, ONE, TWO, THREE)
    seal(catalogue, 10, ONE, TWO, THREE, exclude=(THREE,))
    for node in (ONE, TWO):
        fence(catalogue, node)
    assert do(catalogue, replication.ElectWriters((stream.id,))) == ()
    [election] = do(catalogue, replication.ElectWriters((stream.id,), unclean=True))
    assert (election.writer, election.unclean) == (THREE, True)


def test_a_successor_is_not_the_writer() -> None:
    catalogue = cluster()
    stream = create(catalogue, ONE, TWO, THREE)
    assert electing.successor(catalogue, stream) == TWO
    assert electing.successor(catalogue, stream, without=(TWO,)) == THREE
    assert electing.preferred(catalogue, stream) == ONE


# Copies


def test_a_range_is_copied_before_a_replica_may_be_dropped() -> None:
    catalogue = cluster(4)
    stream = create(catalogue, ONE, TWO, THREE)
    seal(catalogue, 10, ONE, TWO)
    index = RangeIndex(0)
    drop = replication.DropReplica(stream.id, index, TWO)
    assert isinstance(refused(catalogue, drop), InvalidRequest)
    do(catalogue, replication.CopyRange(stream.id, index, FOUR))
    assert held(catalogue).ranges[0].replicating == (FOUR,)
    do(catalogue, replication.ReplicaDone(stream.id, index, FOUR, "disk-4"))
    known = do(catalogue, drop).ranges[0]
    assert known.replicas == (ONE, THREE, FOUR)
    assert known.directories == ("disk-1", "disk-3", "disk-4")
    assert known.done == (ONE, FOUR)
    assert known.replicating == ()


def test_a_copy_counts_only_on_the_disk_and_in_the_generation_that_are_asked_for() -> None:
    catalogue = cluster(4)
    stream = create(catalogue, ONE, TWO)
    seal(catalogue, 10, ONE)
    index = RangeIndex(0)
    for disk, generation in (("another", 0), ("disk-2", 1)):
        done = replication.ReplicaDone(stream.id, index, TWO, disk, generation)
        assert isinstance(refused(catalogue, done), Fenced)
    stranger = replication.ReplicaDone(stream.id, index, FOUR, "disk-4")
    assert isinstance(refused(catalogue, stranger), Fenced)
    after = do(catalogue, replication.ReplicaDone(stream.id, index, TWO, "disk-2"))
    assert after.ranges[0].done == (ONE, TWO)


def test_a_damaged_copy_is_copied_anew_from_another() -> None:
    catalogue = cluster()
    stream = create(catalogue, ONE, TWO)
    seal(catalogue, 10, ONE, TWO)
    lost = do(catalogue, replication.ReplicaLost(stream.id, RangeIndex(0), ONE)).ranges[0]
    assert (lost.done, lost.replicating) == ((TWO,), (ONE,))
    last = replication.ReplicaLost(stream.id, RangeIndex(0), TWO)
    assert isinstance(refused(catalogue, last), InvalidRequest)


def test_a_rewritten_range_must_be_on_as_many_disks_as_acknowledge() -> None:
    catalogue = cluster()
    stream = create(catalogue, ONE, TWO, THREE)
    seal(catalogue, 10, ONE, TWO, THREE)
    swap = commands.SwapGeneration(
        stream.id, Epoch(0), RangeIndex(0), 0, 1, 5, 1, 1, 1, done=(ONE,)
    )
    assert isinstance(refused(catalogue, swap), InvalidRequest)
    after = do(catalogue, msgspec.structs.replace(swap, done=(ONE, TWO))).ranges[0]
    assert (after.generation, after.done) == (1, (ONE, TWO))


def test_the_number_of_replicas_can_be_changed() -> None:
    catalogue = cluster()
    stream = create(catalogue, ONE)
    seal(catalogue, 10)
    do(catalogue, replication.ReassignPartitions(((stream.id, (TWO, ONE, THREE)),)))
    assert catalogue.need_topic(TOPIC).replicas_wanted == 3
    stream = seal(catalogue, 20)
    assert stream.last.replicas == (TWO, ONE, THREE)
    do(catalogue, replication.CopyRange(stream.id, RangeIndex(0), TWO))
    known = do(catalogue, replication.ReplicaDone(stream.id, RangeIndex(0), TWO, "disk-2"))
    assert known.ranges[0].done == (ONE, TWO)
    [move] = cluster_view.move_rows(catalogue)
    assert (move.adding, move.removing) == ((TWO, THREE), ())


def test_a_target_names_nodes_that_exist() -> None:
    catalogue = cluster()
    stream = create(catalogue, ONE)
    command = replication.ReassignPartitions(((stream.id, (NodeId(9),)),))
    assert refused(catalogue, command).code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_plan_for_many_streams_passes_over_those_that_were_deleted_since() -> None:
    catalogue = cluster()
    stream = create(catalogue, ONE)
    moves = ((DELETED, (TWO, THREE)), (stream.id, (TWO, ONE)))
    assert refused(catalogue, replication.ReassignPartitions(moves)).subject == str(DELETED)
    do(catalogue, replication.ReassignPartitions(moves, keep_factor=True))
    assert catalogue.need_stream(stream.id).wanted == (TWO, ONE)


def test_a_deleted_stream_keeps_no_other_from_its_new_writer() -> None:
    catalogue = cluster()
    stream = create(catalogue, ONE, TWO, THREE)
    seal(catalogue, 10, ONE, TWO, THREE, exclude=(THREE,))
    for node in (ONE, TWO):
        fence(catalogue, node)
    command = replication.ElectWriters((DELETED, stream.id), unclean=True)
    assert [election.stream for election in do(catalogue, command)] == [stream.id]


# Nodes


def test_draining_outlasts_a_restart_and_needs_somebody_else() -> None:
    catalogue = cluster(2)
    do(catalogue, replication.DrainNode(ONE))
    register(catalogue, ONE)
    known = catalogue.node(ONE)
    assert known is not None
    assert known.status == "draining"
    fence(catalogue, ONE)
    alone = refused(catalogue, replication.DrainNode(TWO))
    assert alone.code is ErrorCode.POLICY_VIOLATION
    register(catalogue, ONE)
    do(catalogue, replication.UndrainNode(ONE))
    known = catalogue.node(ONE)
    assert known is not None
    assert known.status == "live"


def test_a_node_that_holds_ranges_cannot_be_unregistered() -> None:
    catalogue = cluster()
    create(catalogue, ONE, TWO)
    fence(catalogue, TWO)
    command = commands.UnregisterNode(TWO, asked=ONE)
    assert refused(catalogue, command).code is ErrorCode.POLICY_VIOLATION
    do(catalogue, commands.UnregisterNode(THREE, asked=ONE))


# Views


def test_rows_tell_what_state_ranges_and_nodes_are_in() -> None:
    catalogue = cluster()
    create(catalogue, ONE, TWO, THREE)
    seal(catalogue, 10, ONE, TWO)
    fence(catalogue, ONE)
    sealed, last = cluster_view.range_rows(catalogue)
    assert (sealed.state, sealed.done, sealed.end) == ("incomplete", (ONE, TWO), 10)
    assert (last.state, last.writer, last.done) == ("taking over", TWO, (TWO, THREE))
    rows = cluster_view.node_rows(catalogue)
    assert [(row.node, row.status, row.writes, row.ranges) for row in rows] == [
        (ONE, "fenced", 0, 2), (TWO, "live", 1, 2), (THREE, "live", 0, 2),
    ]  # fmt: skip
    assert cluster_view.incomplete(catalogue) == {"incomplete": 1, "taking over": 1}


def test_only_what_the_catalogue_has_let_go_is_garbage() -> None:
    catalogue = cluster(4)
    stream = create(catalogue, ONE, TWO)
    for end in (10, 20, 30):
        seal(catalogue, end, ONE, TWO)
    do(catalogue, commands.TrimStream(stream.id, Epoch(0), Offset(10)))
    do(catalogue, replication.CopyRange(stream.id, RangeIndex(1), FOUR))

    def garbage(node: NodeId) -> list[int]:
        return [i for i in range(6) if cluster_view.is_garbage(catalogue, node, stream.id, i)]

    assert garbage(ONE) == [0]
    assert garbage(THREE) == [0, 1, 2, 3]
    assert garbage(FOUR) == [0, 2, 3]
    do(catalogue, commands.DeleteTopic(TOPIC))
    assert garbage(ONE) == [0, 1, 2, 3, 4, 5]
    later = Catalogue(msgspec.json.decode(msgspec.json.encode(catalogue.state()),
                                          type=CatalogueState))  # fmt: skip
    assert cluster_view.is_garbage(later, ONE, stream.id, 0)
    stranger = StreamId(TopicId(bytes([7]) * 16), PartitionIndex(0))
    assert not cluster_view.is_garbage(catalogue, ONE, stranger, 0)


def test_a_snapshot_of_former_times_is_read() -> None:
    old = (
        b'{"cluster_id":"c","nodes":[{"node":{"id":1,"host":"h","port":1,"rack":null},'
        b'"incarnation":3,"directory":"d"}],"topics":[{"id":"AAAAAAAAAAAAAAAAAAAAAA==",'
        b'"name":"t","created_ms":1,"streams":[{"id":["AAAAAAAAAAAAAAAAAAAAAA==",0],"epoch":2,'
        b'"writer":1,"start":0,"ranges":[{"index":0,"start":0,"epoch":2,"replicas":[1],'
        b'"end":null,"generation":0,"size_bytes":0,"batch_count":0,"max_timestamp":-1,'
        b'"max_timestamp_offset":-1,"sealed_ms":0,"suspect":false}]}],"configs":{},'
        b'"internal":false}]}'
    )
    catalogue = Catalogue(msgspec.json.decode(old, type=CatalogueState))
    stream = held(catalogue)
    assert (stream.wanted, stream.last.acks_needed, stream.is_taken_over) == ((ONE,), 1, False)
    assert catalogue.need_topic(TOPIC).replicas_wanted == 1
    assert catalogue.is_live(ONE)


def test_a_fact_of_former_times_is_read() -> None:
    catalogue = cluster(1)
    create(catalogue, ONE)
    old = (
        b'{"type":"RangeSealed","request_id":"r","end":{"stream":["AAAAAAAAAAAAAAAAAAAAAA==",0],'
        b'"epoch":0,"index":0,"end":5},"replicas":[1],"at_ms":9}'
    )
    catalogue.replay(msgspec.json.decode(old, type=AnyFact))
    assert (held(catalogue).writer, held(catalogue).last.start) == (ONE, 5)
