"""Any sequence of facts can be replayed: none raises, all leave the catalogue sound.

Facts are drawn over a small universe, in any order and with repeats, as a log might hold them that
was written when outcomes were unknown. A fact that repeats the one before it changes nothing.
"""

from typing import Any, get_args

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.simulation.catalogue_check import catalogue_violation

from mainstem.model.ids import (
    NO_NODE,
    Epoch,
    NodeId,
    Offset,
    PartitionIndex,
    ProducerId,
    RangeIndex,
    StreamId,
    TopicId,
)
from mainstem.model.metadata import Node
from mainstem.placement.changes import commands
from mainstem.placement.changes import replication_commands as replication
from mainstem.placement.changes import security_commands as security
from mainstem.placement.changes.commands import AnyFact, CatalogueState, RangeEnd
from mainstem.placement.changes.replication_commands import Election
from mainstem.placement.state import chain
from mainstem.placement.state.catalogue import Catalogue
from mainstem.security.authentication.passwords import Credentials
from mainstem.security.authentication.tokens import ApiToken, DelegationToken
from mainstem.security.authorisation.acl import (
    AclRule,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from mainstem.security.authorisation.roles import RoleRule

decoder: msgspec.json.Decoder[AnyFact] = msgspec.json.Decoder(AnyFact)

small = st.integers(0, 3)
nodes = st.sampled_from([NodeId(1), NodeId(2), NodeId(3)])
disks = st.sampled_from(["d", "e"])
several = st.lists(nodes, min_size=1, max_size=3, unique=True).map(tuple)
some = st.lists(nodes, max_size=3, unique=True).map(tuple)
topic_ids = st.integers(1, 3).map(lambda number: TopicId(number.to_bytes(16)))
names = st.sampled_from(["a", "b", "a.b", "a_b"])
streams = st.builds(StreamId, topic_ids, st.integers(0, 4).map(PartitionIndex))
configs = st.sampled_from([{}, {"retention.ms": "5"}, {"retention.ms": "6"}])
epochs = st.integers(0, 4).map(Epoch)
indexes = small.map(RangeIndex)
offsets = st.integers(0, 60).map(Offset)
words = st.sampled_from(["u", "v"])
ends = st.builds(RangeEnd, streams, epochs, indexes, offsets, size_bytes=small)
elections = st.builds(
    Election, streams, epochs, st.sampled_from([NO_NODE, NodeId(1), NodeId(2)]), st.booleans()
)
ballots = st.lists(elections, max_size=3).map(tuple)
acl = AclRule(
    ResourceType.TOPIC,
    PatternType.LITERAL,
    "t",
    "User:u",
    "*",
    Operation.READ,
    Permission.ALLOW,
)
rules = st.sampled_from([(), (acl,)])
role_rules = st.just((RoleRule(ResourceType.TOPIC, Operation.READ),))


@st.composite
def placements(draw: st.DrawFn) -> tuple[tuple[NodeId, ...], ...]:
    """The replicas of one to three new partitions, as many for each."""
    size = draw(st.integers(1, 3))
    one = st.permutations([NodeId(1), NodeId(2), NodeId(3)]).map(lambda all_: tuple(all_[:size]))
    return tuple(draw(st.lists(one, min_size=1, max_size=3)))


every_disk = st.tuples(disks, disks, disks).map(
    lambda chosen: tuple(zip((NodeId(1), NodeId(2), NodeId(3)), chosen, strict=True))
)
created = st.builds(
    commands.TopicCreated,
    topic_ids,
    names,
    placements(),
    configs,
    st.booleans(),
    st.just(0),
    every_disk,
    st.integers(0, 1),
)


@st.composite
def sealed(draw: st.DrawFn) -> commands.RangeSealed:
    """A seal as deciders make it: a writer that is given the stream has the next epoch."""
    end = draw(ends)
    replicas = draw(several)
    writer = draw(st.none() | st.sampled_from(replicas))
    return commands.RangeSealed(
        draw(words),
        end,
        replicas,
        0,
        done=draw(some),
        writer=writer,
        epoch=None if writer is None else Epoch(end.epoch + 1),
        directories=tuple(draw(disks) for _ in replicas) if draw(st.booleans()) else (),
        unclean=draw(st.booleans()),
    )


FACTS: dict[type, st.SearchStrategy[Any]] = {
    commands.ClusterFormed: st.builds(commands.ClusterFormed, words, small),
    commands.NodeRegistered: st.builds(
        commands.NodeRegistered,
        st.builds(Node, nodes, st.just("h"), st.just(1)),
        small,
        disks,
        small,
        ballots,
        st.sampled_from([(1, 1), (1, 2)]),
    ),
    commands.TopicCreated: created,
    commands.TopicRestored: created.map(
        lambda fact: commands.TopicRestored(
            chain.new_topic(msgspec.structs.replace(fact, name="restored"))
        )
    ),
    commands.TopicDeleted: st.builds(commands.TopicDeleted, topic_ids, names),
    commands.PartitionsAdded: st.builds(
        commands.PartitionsAdded, topic_ids, placements(), every_disk, small, st.integers(1, 6)
    ),
    commands.TopicConfigsSet: st.builds(commands.TopicConfigsSet, topic_ids, configs),
    commands.NodeConfigsSet: st.builds(commands.NodeConfigsSet, st.none() | nodes, configs),
    commands.GroupConfigsSet: st.builds(commands.GroupConfigsSet, words, configs),
    commands.ClientMetricsSet: st.builds(commands.ClientMetricsSet, words, configs),
    commands.FeaturesSet: st.builds(
        commands.FeaturesSet, small, st.dictionaries(words, small, max_size=2)
    ),
    commands.NodeUnregistered: st.builds(commands.NodeUnregistered, nodes),
    commands.ProducerIdsAllocated: st.builds(
        commands.ProducerIdsAllocated, st.integers(0, 50).map(ProducerId)
    ),
    commands.StreamsRestarted: st.builds(
        commands.StreamsRestarted, nodes, small, st.lists(ends, max_size=3).map(tuple), small
    ),
    commands.RangeSealed: sealed(),
    commands.StreamTrimmed: st.builds(commands.StreamTrimmed, streams, offsets),
    commands.GenerationSwapped: st.builds(
        commands.GenerationSwapped, streams, indexes, small, small, small, small, small, some
    ),
    commands.RangesMerged: st.builds(
        commands.RangesMerged, streams, indexes, indexes, small, small, some
    ),
    commands.CommandDecided: st.builds(commands.CommandDecided, words, words),
    replication.NodeFenced: st.builds(
        replication.NodeFenced, nodes, small, st.just(""), ballots, small
    ),
    replication.NodeUnfenced: st.builds(replication.NodeUnfenced, nodes, small, ballots, small),
    replication.NodeDraining: st.builds(replication.NodeDraining, nodes, st.booleans(), small),
    replication.WritersElected: st.builds(replication.WritersElected, ballots, small),
    replication.TargetsSet: st.builds(
        replication.TargetsSet,
        st.lists(st.tuples(streams, some), max_size=3).map(tuple),
        st.booleans(),
    ),
    replication.ReplicaCompleted: st.builds(
        replication.ReplicaCompleted, streams, indexes, nodes, disks
    ),
    replication.CopyOrdered: st.builds(replication.CopyOrdered, streams, indexes, nodes),
    replication.ReplicaDropped: st.builds(replication.ReplicaDropped, streams, indexes, nodes),
    security.UserSet: st.builds(security.UserSet, words, st.just(Credentials("x"))),
    security.UserDeleted: st.builds(security.UserDeleted, words),
    security.AclsCreated: st.builds(security.AclsCreated, rules),
    security.AclsDeleted: st.builds(security.AclsDeleted, rules),
    security.RoleSet: st.builds(security.RoleSet, words, role_rules),
    security.RoleDeleted: st.builds(security.RoleDeleted, words),
    security.RolesBound: st.builds(
        security.RolesBound, words, st.lists(words, max_size=2, unique=True).map(tuple)
    ),
    security.QuotaSet: st.builds(
        security.QuotaSet,
        st.just((("user", "u"),)),
        st.sampled_from([{}, {"producer_byte_rate": 1.0}]),
    ),
    security.ApiTokenSet: words.map(
        lambda word: security.ApiTokenSet(ApiToken(word, "u", b"d", "n", 0))
    ),
    security.ApiTokenDeleted: st.builds(security.ApiTokenDeleted, words),
    security.DelegationTokenSet: words.map(
        lambda word: security.DelegationTokenSet(DelegationToken(word, "u", "u", (), 0, 1, 2))
    ),
    security.DelegationTokensDeleted: st.builds(
        security.DelegationTokensDeleted, st.lists(words, max_size=2).map(tuple)
    ),
    security.TokenSecretSet: st.builds(security.TokenSecretSet, st.binary(max_size=4)),
}
facts = st.one_of(*FACTS.values())


@st.composite
def about_a_stream(draw: st.DrawFn, catalogue: Catalogue) -> AnyFact:
    """A fact that fits a stream as it is, or nearly does."""
    topic = draw(st.sampled_from(list(catalogue.topics())))
    stream = draw(st.sampled_from(topic.streams))
    last = stream.last
    wrong = draw(st.sampled_from([0, 0, 0, 0, 1]))
    end = RangeEnd(
        stream.id,
        Epoch(stream.epoch + wrong),
        last.index,
        Offset(last.start + draw(st.integers(0, 20))),
        batch_count=draw(small),
    )
    index = draw(st.sampled_from([known.index for known in stream.ranges]))
    later = draw(st.sampled_from([known.index for known in stream.ranges]))
    election = Election(stream.id, Epoch(stream.epoch + 1 - wrong), draw(nodes))
    replicas = draw(several | st.just(last.replicas))
    holders = next(known.replicas for known in stream.ranges if known.index == min(index, later))
    done = tuple(node for node in last.replicas if draw(st.booleans()))
    generation = draw(st.integers(1, 4))
    node = draw(nodes)
    known = catalogue.node(node)
    life, disk = (known.incarnation, known.directory) if known else (1, "d")
    handed = draw(st.booleans())
    choices: list[AnyFact] = [
        commands.RangeSealed(
            draw(words),
            end,
            replicas,
            0,
            done=done,
            writer=replicas[0] if handed else None,
            epoch=Epoch(end.epoch + 1) if handed else None,
        ),
        commands.StreamsRestarted(stream.writer, life, (end,), 0),
        commands.StreamTrimmed(stream.id, Offset(stream.start + draw(st.integers(0, 9)))),
        commands.GenerationSwapped(stream.id, index, generation, 1, 1, 1, 1, holders),
        commands.RangesMerged(stream.id, min(index, later), max(index, later), 9, 1, holders),
        commands.PartitionsAdded(topic.id, ((node,),), expected=len(topic.streams) + wrong),
        commands.TopicConfigsSet(topic.id, {"retention.ms": "7"}),
        commands.TopicDeleted(topic.id, topic.name),
        replication.WritersElected((election,), 0),
        replication.NodeFenced(node, life + wrong, "", (election,), 0),
        replication.NodeUnfenced(node, life + wrong, (election,), 0),
        replication.NodeDraining(node, draw(st.booleans()), 0),
        replication.TargetsSet(((stream.id, replicas),), draw(st.booleans())),
        replication.CopyOrdered(stream.id, index, node),
        replication.ReplicaCompleted(stream.id, index, node, disk),
        replication.ReplicaDropped(stream.id, index, node),
        commands.NodeRegistered(Node(node, "h", 1), life + 1 - wrong, draw(disks), 0, (election,)),
    ]
    seals = [choices[0]] * 6  # without sealed ranges there is little to go wrong
    return draw(st.sampled_from([*seals, *choices]))


def a_fact(data: st.DataObject, catalogue: Catalogue, log: list[AnyFact]) -> AnyFact:
    """A fact that fits, one that was there before, or any."""
    how = data.draw(st.integers(0, 9))
    if how < 6 and catalogue.partition_count:
        return data.draw(about_a_stream(catalogue))
    if how < 8 and log:
        return data.draw(st.sampled_from(log))
    drawn: AnyFact = data.draw(facts)
    return drawn


def test_every_fact_is_drawn() -> None:
    assert set(FACTS) == set(get_args(AnyFact))


@settings(max_examples=150, deadline=None)
@given(data=st.data(), first=created, steps=st.integers(1, 40))
def test_any_facts_in_any_order_are_replayed_and_leave_a_sound_catalogue(
    data: st.DataObject, first: AnyFact, steps: int
) -> None:
    catalogue, log = Catalogue(), list[AnyFact]()
    for step in range(steps):
        fact = a_fact(data, catalogue, log) if step else first
        log.append(fact)
        before = catalogue.state()
        applied = catalogue.replay(fact)
        assert catalogue_violation(catalogue) is None, (catalogue_violation(catalogue), fact)
        after = catalogue.state()
        assert applied or after == before, f"{fact} was ignored and changed something"
        catalogue.replay(fact)
        assert catalogue.state() == after, f"{fact} was replayed twice and changed something twice"


@settings(max_examples=60, deadline=None)
@given(data=st.data(), first=created, steps=st.integers(1, 40), cut=st.integers(0, 40))
def test_what_is_ignored_is_ignored_by_every_node_and_after_every_restart(
    data: st.DataObject, first: AnyFact, steps: int, cut: int
) -> None:
    whole, log = Catalogue(), list[AnyFact]()
    applied = []
    for step in range(steps):
        log.append(a_fact(data, whole, log) if step else first)
        applied.append(whole.replay(log[-1]))
    resumed = Catalogue()
    again = [resumed.replay(fact) for fact in log[:cut]]
    state = msgspec.json.decode(msgspec.json.encode(resumed.state()), type=CatalogueState)
    resumed = Catalogue(state)
    again += [resumed.replay(decoder.decode(msgspec.json.encode(fact))) for fact in log[cut:]]
    assert again == applied
    assert resumed.state() == whole.state()


def test_a_seal_of_one_range_never_closes_the_next() -> None:
    catalogue = Catalogue()
    topic = TopicId(bytes(16))
    catalogue.replay(commands.TopicCreated(topic, "t", ((NodeId(1),),), {}, False, 0))
    stream = StreamId(topic, PartitionIndex(0))
    end = RangeEnd(stream, Epoch(0), RangeIndex(0), Offset(100))
    seal = commands.RangeSealed("r", end, (NodeId(1),), 0)
    assert catalogue.replay(seal)
    assert not catalogue.replay(seal)
    known = catalogue.need_stream(stream)
    assert [r.index for r in known.ranges] == [0, 1]
    assert known.last.start == 100
    assert catalogue.ignored == {"RangeSealed": 1}


def test_partitions_are_added_to_what_was_expected_and_not_to_what_is_there() -> None:
    catalogue = Catalogue()
    topic = TopicId(bytes(16))
    catalogue.replay(commands.TopicCreated(topic, "t", ((NodeId(1),),) * 3, {}, False, 0))
    added = commands.PartitionsAdded(topic, ((NodeId(1),),) * 3, expected=3)
    assert [catalogue.replay(added), catalogue.replay(added)] == [True, False]
    assert catalogue.partition_count == 6


def test_an_older_election_takes_nothing_back() -> None:
    catalogue = Catalogue()
    topic = TopicId(bytes(16))
    catalogue.replay(commands.TopicCreated(topic, "t", ((NodeId(1), NodeId(2)),), {}, False, 0))
    stream = StreamId(topic, PartitionIndex(0))
    first = replication.WritersElected((Election(stream, Epoch(1), NodeId(2)),), 0)
    second = replication.WritersElected((Election(stream, Epoch(2), NodeId(1)),), 0)
    assert [catalogue.replay(fact) for fact in (first, second, first)] == [True, True, False]
    assert (catalogue.need_stream(stream).writer, catalogue.need_stream(stream).epoch) == (1, 2)


def test_the_last_copy_of_a_range_is_never_dropped() -> None:
    catalogue = Catalogue()
    topic = TopicId(bytes(16))
    catalogue.replay(commands.TopicCreated(topic, "t", ((NodeId(1), NodeId(2)),), {}, False, 0))
    stream = StreamId(topic, PartitionIndex(0))
    end = RangeEnd(stream, Epoch(0), RangeIndex(0), Offset(100))
    both = (NodeId(1), NodeId(2))
    catalogue.replay(commands.RangeSealed("r", end, both, 0, done=(NodeId(1),)))
    drop = replication.ReplicaDropped(stream, RangeIndex(0), NodeId(1))
    assert not catalogue.replay(drop)
    assert catalogue.need_stream(stream).ranges[0].holders == (NodeId(1),)
