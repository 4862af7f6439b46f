"""Any sequence of commands leaves sound chains, and any replay leads to the same catalogue.

Checked after every step: ranges touch, indexes grow, epochs never decrease, only the last range is
open, no empty range is kept (I4); offsets and producer ids are given once; epochs of a stream only
grow. Checked at the end: a snapshot at any point plus the facts after it equals the whole replay,
also through their bytes, and the catalogue agrees with a journal cut at any frame.
"""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from mainstem.model.errors import MainstemError
from mainstem.model.ids import NO_NODE, Epoch, NodeId, Offset, RangeIndex, StreamId, TopicId
from mainstem.model.metadata import Node, Stream
from mainstem.placement.changes import commands
from mainstem.placement.changes import replication_commands as replication
from mainstem.placement.changes.applicability import copies_needed
from mainstem.placement.changes.command_and_fact import Command
from mainstem.placement.changes.commands import AnyFact, CatalogueState, RangeEnd
from mainstem.placement.state import chain
from mainstem.placement.state.catalogue import Catalogue

decoder: msgspec.json.Decoder[AnyFact] = msgspec.json.Decoder(AnyFact)

NODES = (NodeId(1), NodeId(2), NodeId(7))
NAMES = ("a", "b", "a.b", "a_b", "c-d")


class CatalogueMachine(RuleBasedStateMachine):
    """Commands as writers and administrators send them, some of them stale."""

    def __init__(self) -> None:
        super().__init__()
        self.catalogue = Catalogue()
        self.facts: list[AnyFact] = []
        self.now_ms = 0
        self.requests = 0
        self.next_id = 0
        self.disks = 0
        self.created: list[commands.CreateTopic] = []
        self.given: set[int] = set()
        self.highest_epoch: dict[StreamId, int] = {}
        self.highest_index: dict[StreamId, int] = {}
        self.lowest_start: dict[StreamId, int] = {}

    def do(self, command: Command[Any]) -> Any:
        """Decide and replay; None for a refusal."""
        self.now_ms += 1
        before = self.catalogue.state()
        try:
            facts, reply = self.catalogue.decide(command, self.now_ms)
        except MainstemError:
            assert self.catalogue.state() == before
            return None
        assert self.catalogue.state() == before
        for fact in facts:
            assert self.catalogue.replay(fact), f"decided on this state and ignored: {fact}"
            self.facts.append(fact)
        if isinstance(reply, Stream):
            assert reply == self.catalogue.stream(reply.id), "the reply is what then holds"
        return reply

    def streams(self) -> list[Stream]:
        return [stream for topic in self.catalogue.topics() for stream in topic.streams]

    def a_stream(self, data: st.DataObject) -> Stream:
        return data.draw(st.sampled_from(self.streams()), label="stream")

    def an_end(self, data: st.DataObject, stream: Stream, *, stale: bool = False) -> RangeEnd:
        size = data.draw(st.integers(0, 50), label="records")
        return RangeEnd(
            stream.id,
            Epoch(stream.epoch - stale),
            stream.last.index,
            Offset(stream.last.start + size),
            size_bytes=size * 10,
            batch_count=size,
            max_timestamp=data.draw(st.integers(-1, 99), label="timestamp"),
            max_timestamp_offset=stream.last.start,
            suspect=data.draw(st.booleans(), label="suspect"),
        )

    @initialize(partitions=st.integers(1, 4))
    def begin(self, partitions: int) -> None:
        self.register(NODES[0], stale=False)
        self.create("first", partitions, 1, {})

    @rule(node=st.sampled_from(NODES), stale=st.booleans())
    def register(self, node: NodeId, stale: bool) -> None:
        incarnation = self.catalogue.incarnation(node) + (not stale)
        self.do(commands.RegisterNode(Node(node, "h", 1), incarnation, f"dir-{node}"))

    @rule(
        name=st.sampled_from(NAMES),
        partitions=st.integers(0, 4),
        replication_factor=st.integers(0, 4),
        configs=st.sampled_from([{}, {"retention.ms": "5"}, {"retention.ms": "x"}]),
    )
    def create(
        self, name: str, partitions: int, replication_factor: int, configs: dict[str, str]
    ) -> None:
        self.next_id += 1
        topic_id = TopicId(self.next_id.to_bytes(16, "big"))
        command = commands.CreateTopic(topic_id, name, partitions, replication_factor, configs)
        topic = self.do(command)
        if topic is not None:
            self.created.append(command)
            assert self.catalogue.topic(name) == topic
            assert len(topic.streams) == partitions

    @rule(data=st.data())
    def create_again(self, data: st.DataObject) -> None:
        """A sender that does not know the outcome sends the very same command."""
        if self.created:
            assert self.do(data.draw(st.sampled_from(self.created))) is None

    @precondition(lambda self: self.streams())
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        topic = data.draw(st.sampled_from(list(self.catalogue.topics())))
        self.do(commands.DeleteTopic(topic.id))
        assert self.catalogue.topic_by_id(topic.id) is None

    @precondition(lambda self: self.streams())
    @rule(data=st.data(), more=st.integers(-1, 3), wrong=st.integers(0, 1))
    def grow(self, data: st.DataObject, more: int, wrong: int) -> None:
        topic = data.draw(st.sampled_from(list(self.catalogue.topics())))
        count = len(topic.streams)
        self.do(commands.AddPartitions(topic.id, count - wrong, count + more))

    @precondition(lambda self: self.streams())
    @rule(data=st.data(), value=st.integers(-3, 9), stale=st.booleans())
    def configure(self, data: st.DataObject, value: int, stale: bool) -> None:
        topic = data.draw(st.sampled_from(list(self.catalogue.topics())))
        expected = {"segment.ms": "1"} if stale else topic.configs
        self.do(commands.SetTopicConfigs(topic.id, expected, {"retention.ms": str(value)}))

    @rule(node=st.sampled_from([None, *NODES]), value=st.sampled_from(["1", "2", "x"]))
    def configure_node(self, node: NodeId | None, value: str) -> None:
        catalogue = self.catalogue
        now = catalogue.cluster_configs() if node is None else catalogue.node_configs(node)
        self.do(commands.SetNodeConfigs(node, dict(now), {"log.retention.ms": value}))

    @rule(group=st.sampled_from(["g", "h", ""]), value=st.sampled_from([None, "1", "x"]))
    def configure_group(self, group: str, value: str | None) -> None:
        now = self.catalogue.group_configs().get(group, {})
        after = {} if value is None else {"consumer.session.timeout.ms": value}
        self.do(commands.SetGroupConfigs(group, dict(now), after))

    @rule(node=st.sampled_from(NODES), count=st.integers(-1, 5))
    def allocate(self, node: NodeId, count: int) -> None:
        block = self.do(commands.AllocateProducerIds(node, self.catalogue.incarnation(node), count))
        if block is not None:
            fresh = set(range(*block))
            assert len(fresh) == count
            assert not fresh & self.given
            self.given |= fresh

    @precondition(lambda self: self.streams())
    @rule(data=st.data(), stale=st.booleans(), repeat=st.booleans())
    def seal(self, data: st.DataObject, stale: bool, repeat: bool) -> None:
        stream = self.a_stream(data)
        self.requests += 1
        end = self.an_end(data, stream, stale=stale)
        done = data.draw(st.sets(st.sampled_from(stream.last.replicas)), label="done")
        exclude = data.draw(st.sets(st.sampled_from(NODES)), label="excluded")
        successor = data.draw(st.sampled_from([None, *stream.last.replicas]), label="new writer")
        command = commands.SealAndCreate(
            f"r{self.requests}", end, tuple(done), tuple(exclude), successor
        )
        after = self.do(command)
        if stale or stream.writer == NO_NODE:
            assert after is None
        elif successor is None:
            assert after is not None, "a writer that has its epoch can always roll"
        if after is not None:
            assert after.writer == (stream.writer if successor is None else successor)
            assert after.writer in after.last.replicas
            assert after.epoch == after.last.epoch == stream.epoch + (successor is not None)
        if repeat and after is not None:
            count = len(self.facts)
            assert self.do(command) == after
            assert len(self.facts) == count

    @precondition(lambda self: self.streams())
    @rule(data=st.data(), node=st.sampled_from(NODES))
    def restart(self, data: st.DataObject, node: NodeId) -> None:
        held = [s for s in self.catalogue.streams_of(node) if s.last.replicas == (node,)]
        if not held:
            return
        some = data.draw(st.lists(st.sampled_from(held), unique_by=lambda s: s.id, max_size=4))
        self.register(node, stale=False)
        ends = tuple(self.an_end(data, stream) for stream in some)
        after = self.do(commands.RestartStreams(node, self.catalogue.incarnation(node), ends))
        assert [stream.epoch for stream in after] == [stream.epoch + 1 for stream in some]

    @precondition(lambda self: self.streams())
    @rule(data=st.data(), ahead=st.integers(-5, 60), stale=st.booleans())
    def trim(self, data: st.DataObject, ahead: int, stale: bool) -> None:
        stream = self.a_stream(data)
        start = Offset(max(0, stream.start + ahead))
        after = self.do(commands.TrimStream(stream.id, Epoch(stream.epoch - stale), start))
        assert (after is None) == stale
        if after is not None:
            assert after.start == max(start, stream.start)

    @precondition(lambda self: self.streams())
    @rule(data=st.data(), step=st.integers(0, 2))
    def compact(self, data: st.DataObject, step: int) -> None:
        stream = self.a_stream(data)
        target = data.draw(st.sampled_from(stream.ranges))
        after = self.do(
            commands.SwapGeneration(
                stream.id, stream.epoch, target.index, target.generation,
                target.generation + step, 1, 1, 5, target.start, target.replicas,
            )
        )  # fmt: skip
        assert (after is None) == (target.is_open or step == 0)

    @precondition(lambda self: self.streams())
    @rule(data=st.data())
    def merge(self, data: st.DataObject) -> None:
        stream = self.a_stream(data)
        first, last = data.draw(st.tuples(*[st.sampled_from(stream.ranges)] * 2))
        generation = max(r.generation for r in stream.ranges) + 1
        after = self.do(
            commands.MergeRanges(
                stream.id, stream.epoch, first.index, last.index, generation, 100, first.replicas
            )
        )
        if after is not None:
            assert first.index < last.index
            assert sum(r.batch_count for r in after.ranges) == sum(
                r.batch_count for r in stream.ranges
            )

    # Nodes come and go, ranges are copied

    @rule(node=st.sampled_from(NODES), stale=st.booleans())
    def fence(self, node: NodeId, stale: bool) -> None:
        incarnation = self.catalogue.incarnation(node) - stale
        self.do(replication.FenceNode(node, incarnation, "the lease has ended"))
        if not stale and incarnation:
            assert not list(self.catalogue.streams_of(node))

    @rule(node=st.sampled_from(NODES))
    def unfence(self, node: NodeId) -> None:
        self.do(replication.UnfenceNode(node, self.catalogue.incarnation(node)))

    @rule(node=st.sampled_from(NODES), back=st.booleans())
    def drain(self, node: NodeId, back: bool) -> None:
        self.do(replication.UndrainNode(node) if back else replication.DrainNode(node))

    @rule(node=st.sampled_from(NODES))
    def replace_disk(self, node: NodeId) -> None:
        self.disks += 1
        incarnation = self.catalogue.incarnation(node) + 1
        self.do(commands.RegisterNode(Node(node, "h", 1), incarnation, f"disk-{self.disks}"))

    @precondition(lambda self: self.streams())
    @rule(data=st.data(), unclean=st.booleans())
    def elect(self, data: st.DataObject, unclean: bool) -> None:
        stream = self.a_stream(data)
        for election in self.do(replication.ElectWriters((stream.id,), unclean)):
            assert self.catalogue.is_live(election.writer)
            assert unclean or election.writer in stream.last.replicas

    @precondition(lambda self: self.streams())
    @rule(data=st.data(), nodes=st.none() | st.lists(st.sampled_from(NODES), max_size=3))
    def reassign(self, data: st.DataObject, nodes: list[NodeId] | None) -> None:
        stream = self.a_stream(data)
        target = None if nodes is None else tuple(nodes)
        self.do(replication.ReassignPartitions(((stream.id, target),)))

    @precondition(lambda self: any(len(s.ranges) > 1 for s in self.streams()))
    @rule(data=st.data(), node=st.sampled_from(NODES), act=st.integers(0, 3))
    def copy(self, data: st.DataObject, node: NodeId, act: int) -> None:
        long = [stream for stream in self.streams() if len(stream.ranges) > 1]
        stream = data.draw(st.sampled_from(long))
        known = data.draw(st.sampled_from(stream.ranges[:-1]))
        if act == 0:
            registered = self.catalogue.node(node)
            disk = registered.directory if registered else ""
            after = self.do(
                replication.ReplicaDone(stream.id, known.index, node, disk, known.generation)
            )
            assert after is None or node in after.ranges[stream.ranges.index(known)].holders
        elif act == 1:
            self.do(replication.CopyRange(stream.id, known.index, node))
        elif act == 2:
            self.do(replication.ReplicaLost(stream.id, known.index, node))
        else:
            after = self.do(replication.DropReplica(stream.id, known.index, node))
            if after is not None and node in known.replicas:
                left = after.ranges[stream.ranges.index(known)]
                assert len(left.holders) >= copies_needed(stream, known)

    @invariant()
    def writers_are_live(self) -> None:
        for stream in self.streams():
            assert stream.writer == NO_NODE or self.catalogue.is_live(stream.writer)

    @invariant()
    def chains_are_sound(self) -> None:
        for stream in self.streams():
            assert chain.flaw(stream) is None, chain.flaw(stream)
            assert sum(r.is_open for r in stream.ranges) == 1

    @invariant()
    def nothing_goes_back(self) -> None:
        for stream in self.streams():
            key = stream.id
            assert stream.epoch >= self.highest_epoch.get(key, 0)
            assert stream.last.index >= self.highest_index.get(key, 0)
            assert stream.start >= self.lowest_start.get(key, 0)
            self.highest_epoch[key] = stream.epoch
            self.highest_index[key] = stream.last.index
            self.lowest_start[key] = stream.start

    @invariant()
    def names_and_counts_agree(self) -> None:
        topics = list(self.catalogue.topics())
        assert self.catalogue.partition_count == sum(len(topic.streams) for topic in topics)
        for topic in topics:
            assert self.catalogue.topic(topic.name) == topic
        keys = [topic.name.replace(".", "_") for topic in topics]
        assert len(keys) == len(set(keys))

    def teardown(self) -> None:
        """Snapshots anywhere plus the facts after them are the same catalogue."""
        for cut in {0, len(self.facts) // 3, len(self.facts) // 2, len(self.facts)}:
            early = Catalogue()
            for fact in self.facts[:cut]:
                early.replay(through_bytes(fact))
            state = msgspec.json.decode(msgspec.json.encode(early.state()), type=CatalogueState)
            late = Catalogue(state)
            for fact in self.facts[cut:]:
                late.replay(through_bytes(fact))
            assert late.state() == self.catalogue.state()
            assert early.fork().state() == early.state()


def through_bytes(fact: AnyFact) -> AnyFact:
    return decoder.decode(msgspec.json.encode(fact))


TestCatalogue = CatalogueMachine.TestCase
TestCatalogue.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)


@given(
    ends=st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=12),
    trims=st.lists(st.integers(0, 80), max_size=4),
)
def test_every_offset_belongs_to_at_most_one_range(
    ends: list[tuple[int, bool]], trims: list[int]
) -> None:
    stream = chain.new_stream(StreamId(TopicId(bytes(16)), 0), (NodeId(1),))  # type: ignore[arg-type]
    for number, (length, is_restart) in enumerate(ends):
        end = RangeEnd(
            stream.id, stream.epoch, stream.last.index, Offset(stream.last.start + length)
        )
        if is_restart:
            stream = chain.restarted(stream, end, number)
        else:
            fact = commands.RangeSealed(str(number), end, stream.last.replicas, number)
            stream = chain.rolled(stream, fact)
        if trims and number % 3 == 2:
            stream = chain.trimmed(stream, Offset(trims.pop()))
        assert chain.flaw(stream) is None
    owners = [
        offset
        for r in stream.ranges
        for offset in range(r.start, r.end if r.end is not None else r.start)
    ]
    assert len(owners) == len(set(owners))
    indexes = [r.index for r in stream.ranges]
    assert indexes == sorted(set(indexes))
    assert indexes[-1] == RangeIndex(len(ends))
