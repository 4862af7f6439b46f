"""The catalogue's stories: what each command leads to, and what it refuses."""

from typing import TypeVar

import pytest
from msgspec.structs import replace

from mainstem.model.errors import ErrorCode, Fenced, InvalidRequest, MainstemError
from mainstem.model.ids import Epoch, NodeId, Offset, ProducerId, RangeIndex, TopicId
from mainstem.model.metadata import Node, Stream, Topic
from mainstem.placement.changes import cluster_decisions
from mainstem.placement.changes import commands as records
from mainstem.placement.changes.command_and_fact import Command
from mainstem.placement.changes.commands import RangeEnd
from mainstem.placement.state.catalogue import Catalogue

ReplyT = TypeVar("ReplyT")

NODE = NodeId(1)
NOW_MS = 1_000


def catalogue_of(*nodes: int) -> Catalogue:
    catalogue = Catalogue()
    for node in nodes:
        do(catalogue, records.RegisterNode(Node(NodeId(node), "host", 9092), 1, f"dir-{node}"))
    return catalogue


def do(catalogue: Catalogue, command: Command[ReplyT]) -> ReplyT:
    before = catalogue.state()
    decision = catalogue.decide(command, NOW_MS)
    assert catalogue.state() == before, "a decision changes nothing"
    for fact in decision.facts:
        assert catalogue.replay(fact), "a fact that was decided on this state applies"
    return decision.reply


def refusal(catalogue: Catalogue, command: Command[ReplyT]) -> MainstemError:
    before = catalogue.state()
    with pytest.raises(MainstemError) as refused:
        catalogue.decide(command, NOW_MS)
    assert catalogue.state() == before
    return refused.value


def topic_id(number: int) -> TopicId:
    return TopicId(bytes([number]) * 16)


def create(catalogue: Catalogue, name: str, partitions: int = 1, number: int = 1) -> Topic:
    return do(catalogue, records.CreateTopic(topic_id(number), name, partitions, 1))


def end_of(stream: Stream, end: int, size_bytes: int = 10) -> RangeEnd:
    return RangeEnd(
        stream.id, stream.epoch, stream.last.index, Offset(end), size_bytes=size_bytes,
        batch_count=1, max_timestamp=end, max_timestamp_offset=end - 1,
    )  # fmt: skip


def seal(catalogue: Catalogue, stream: Stream, end: int, request: str = "") -> Stream:
    command = records.SealAndCreate(request or f"request-{end}", end_of(stream, end))
    return do(catalogue, command)


def restart(catalogue: Catalogue, *ends: RangeEnd) -> tuple[Stream, ...]:
    incarnation = catalogue.incarnation(NODE) + 1
    do(catalogue, records.RegisterNode(Node(NODE, "host", 9092), incarnation, "dir-1"))
    return do(catalogue, records.RestartStreams(NODE, incarnation, ends))


def spans(stream: Stream) -> list[tuple[int, int, int | None, int]]:
    return [(r.index, r.start, r.end, r.epoch) for r in stream.ranges]


# Topics


def test_a_new_topic_has_empty_streams_written_by_their_first_replica() -> None:
    catalogue = catalogue_of(1)
    topic = create(catalogue, "t", partitions=2)
    assert catalogue.topic("t") == catalogue.topic_by_id(topic.id) == topic
    assert topic.created_ms == NOW_MS
    for partition, stream in enumerate(topic.streams):
        assert (stream.id.partition, stream.epoch, stream.writer) == (partition, 0, NODE)
        assert spans(stream) == [(0, 0, None, 0)]


def test_partitions_are_spread_over_the_nodes() -> None:
    catalogue = catalogue_of(3, 1, 2)
    topic = do(catalogue, records.CreateTopic(topic_id(1), "t", 4, 2))
    grown = do(catalogue, records.AddPartitions(topic.id, 4, 6))
    held = [node for s in grown.streams for node in s.last.replicas]
    assert all(held.count(node) in (3, 4, 5) for node in set(held))
    written = [s.writer for s in grown.streams]
    assert sorted(written) == [1, 1, 2, 2, 3, 3]


def test_a_name_can_be_taken_once() -> None:
    catalogue = catalogue_of(1)
    create(catalogue, "t")
    assert refusal(catalogue, records.CreateTopic(topic_id(2), "t", 1, 1)).code is (
        ErrorCode.TOPIC_EXISTS
    )


def test_names_that_differ_only_in_period_and_underscore_cannot_live_together() -> None:
    catalogue = catalogue_of(1)
    topic = create(catalogue, "a.b")
    error = refusal(catalogue, records.CreateTopic(topic_id(2), "a_b", 1, 1))
    assert error.code is ErrorCode.INVALID_TOPIC_NAME
    assert "'a.b'" in str(error)
    do(catalogue, records.DeleteTopic(topic.id))
    create(catalogue, "a_b", number=2)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"name": "no/slash"}, ErrorCode.INVALID_TOPIC_NAME),
        ({"partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"partitions": 100_001}, ErrorCode.INVALID_PARTITIONS),
        ({"replication_factor": 2}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"configs": {"retention.ms": "x"}}, ErrorCode.INVALID_CONFIG),
        ({"configs": {"nonsense": "x"}}, ErrorCode.INVALID_CONFIG),
        ({"assignments": ((NodeId(1), NodeId(1)),)}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": ((NodeId(2),),)}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": ((),)}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignments": ()}, ErrorCode.INVALID_PARTITIONS),
    ],
)
def test_a_topic_that_cannot_be_is_refused(changes: dict[str, object], code: ErrorCode) -> None:
    catalogue = catalogue_of(1)
    fields = {"id": topic_id(1), "name": "t", "partitions": 1, "replication_factor": 1} | changes
    assert refusal(catalogue, records.CreateTopic(**fields)).code is code  # type: ignore[arg-type]


def test_an_assignment_may_name_the_replicas() -> None:
    catalogue = catalogue_of(1, 2)
    assigned = ((NodeId(2), NodeId(1)), (NodeId(1), NodeId(2)))
    topic = do(catalogue, records.CreateTopic(topic_id(1), "t", -1, -1, assignments=assigned))
    assert [stream.writer for stream in topic.streams] == [2, 1]


def test_a_deleted_topic_is_gone_and_its_name_free_for_another_id() -> None:
    catalogue = catalogue_of(1)
    first = create(catalogue, "t")
    do(catalogue, records.DeleteTopic(first.id))
    assert catalogue.topic("t") is None
    assert catalogue.partition_count == 0
    second = create(catalogue, "t", number=2)
    assert catalogue.topic_by_id(first.id) is None
    assert catalogue.topic("t") == second
    assert refusal(catalogue, records.DeleteTopic(first.id)).code is ErrorCode.UNKNOWN_TOPIC_ID


def test_the_id_of_a_deleted_topic_is_not_used_again() -> None:
    catalogue = catalogue_of(1)
    create(catalogue, "orders")
    do(catalogue, records.DeleteTopic(topic_id(1)))
    again = refusal(catalogue, records.CreateTopic(topic_id(1), "orders", 1, 1))
    assert (again.code, again.subject) == (ErrorCode.FENCED_EPOCH, "orders")
    assert "has been deleted" in again.cause


def test_a_topic_only_grows() -> None:
    catalogue = catalogue_of(1)
    topic = create(catalogue, "t", partitions=3)
    code = refusal(catalogue, records.AddPartitions(topic.id, 3, 3)).code
    assert code is ErrorCode.INVALID_PARTITIONS
    assert len(do(catalogue, records.AddPartitions(topic.id, 3, 5)).streams) == 5
    assert catalogue.partition_count == 5


def test_partitions_are_not_added_to_a_number_that_has_changed() -> None:
    catalogue = catalogue_of(1)
    topic = create(catalogue, "t", partitions=3)
    assert isinstance(refusal(catalogue, records.AddPartitions(topic.id, 2, 5)), Fenced)


def test_settings_are_replaced_only_if_nobody_changed_them_meanwhile() -> None:
    catalogue = catalogue_of(1)
    topic = create(catalogue, "t")
    do(catalogue, records.SetTopicConfigs(topic.id, {}, {"retention.ms": "5"}))
    stale = records.SetTopicConfigs(topic.id, {}, {"retention.ms": "6"})
    assert isinstance(refusal(catalogue, stale), Fenced)
    changed = catalogue.topic("t")
    assert changed is not None
    assert changed.configs == {"retention.ms": "5"}


def test_settings_of_one_node_and_of_all_are_kept_apart() -> None:
    catalogue = catalogue_of(1)
    do(catalogue, records.SetNodeConfigs(None, {}, {"log.retention.ms": "1"}))
    do(catalogue, records.SetNodeConfigs(NODE, {}, {"log.retention.ms": "2"}))
    assert catalogue.cluster_configs() == {"log.retention.ms": "1"}
    assert catalogue.node_configs(NODE) == {"log.retention.ms": "2"}
    fixed = records.SetNodeConfigs(None, {"log.retention.ms": "1"}, {"num.partitions": "2"})
    assert refusal(catalogue, fixed).code is ErrorCode.INVALID_REQUEST
    unknown = records.SetNodeConfigs(None, {"log.retention.ms": "1"}, {"num.wheels": "4"})
    assert refusal(catalogue, unknown).code is ErrorCode.INVALID_CONFIG
    do(catalogue, records.SetNodeConfigs(NODE, {"log.retention.ms": "2"}, {}))
    assert catalogue.node_configs(NODE) == {}


def test_settings_of_groups_are_kept_until_nothing_is_set() -> None:
    catalogue = catalogue_of(1)
    chosen = {"consumer.session.timeout.ms": "50000"}
    do(catalogue, records.SetGroupConfigs("g", {}, chosen))
    assert catalogue.group_configs() == {"g": chosen}
    assert catalogue.fork().group_configs() == {"g": chosen}
    assert isinstance(refusal(catalogue, records.SetGroupConfigs("g", {}, {})), Fenced)
    for bad in (
        records.SetGroupConfigs("g", chosen, {"retention.ms": "1"}),
        records.SetGroupConfigs("g", chosen, {"consumer.session.timeout.ms": "0"}),
    ):
        assert refusal(catalogue, bad).code is ErrorCode.INVALID_CONFIG
    unnamed = records.SetGroupConfigs("", {}, chosen)
    assert refusal(catalogue, unnamed).code is ErrorCode.INVALID_REQUEST
    do(catalogue, records.SetGroupConfigs("g", chosen, {}))
    assert catalogue.group_configs() == {}


def test_only_so_many_groups_have_settings_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_decisions, "GROUPS_CONFIGURED_MAX", 1)
    catalogue = catalogue_of(1)
    chosen = {"consumer.session.timeout.ms": "50000"}
    do(catalogue, records.SetGroupConfigs("g", {}, chosen))
    more = records.SetGroupConfigs("h", {}, chosen)
    assert refusal(catalogue, more).code is ErrorCode.POLICY_VIOLATION
    do(catalogue, records.SetGroupConfigs("g", chosen, {}))
    do(catalogue, more)


def test_subscriptions_to_metrics_are_kept_until_nothing_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster_decisions, "SUBSCRIPTIONS_MAX", 1)
    catalogue = catalogue_of(1)
    chosen = {"metrics": "*", "interval.ms": "1000", "match": "client_id=app.*"}
    do(catalogue, records.SetClientMetrics("s", {}, chosen))
    assert catalogue.fork().client_metrics == {"s": chosen}
    assert isinstance(refusal(catalogue, records.SetClientMetrics("s", {}, {})), Fenced)
    for bad in (
        {"interval.ms": "99"},
        {"interval": "1000"},
        {"match": "client_id"},
        {"match": "client_id=a,client_id=b"},
        {"match": "user=alice"},
    ):
        command = records.SetClientMetrics("s", chosen, bad)
        assert refusal(catalogue, command).code is ErrorCode.INVALID_CONFIG
    another = records.SetClientMetrics("t", {}, chosen)
    assert refusal(catalogue, another).code is ErrorCode.POLICY_VIOLATION
    do(catalogue, records.SetClientMetrics("s", chosen, {}))
    do(catalogue, another)
    assert catalogue.client_metrics == {"t": chosen}


def test_levels_of_features_are_set_together_and_counted() -> None:
    catalogue = catalogue_of(1)
    levels = {"group.version": 0, "transaction.version": 1}
    do(catalogue, records.SetFeatures(0, levels))
    assert (catalogue.fork().features, catalogue.fork().features_epoch) == (levels, 1)
    do(catalogue, records.SetFeatures(1, levels))
    assert catalogue.features_epoch == 1, "nothing has changed"
    assert isinstance(refusal(catalogue, records.SetFeatures(0, {})), Fenced)
    for bad in ({"group.version": 2}, {"transaction.version": -1}, {"streams.version": 1}):
        command = records.SetFeatures(1, bad)
        assert refusal(catalogue, command).code is ErrorCode.INVALID_FEATURE_LEVEL


# Nodes and producers


def test_a_node_is_forgotten_when_it_is_gone_and_writes_nothing() -> None:
    catalogue = catalogue_of(1, 2)
    topic = do(
        catalogue,
        records.CreateTopic(TopicId(b"t" * 16), "t", -1, -1, assignments=((NodeId(2),),)),
    )
    gone = records.UnregisterNode(NodeId(2), NODE)
    assert refusal(catalogue, gone).code is ErrorCode.POLICY_VIOLATION
    do(catalogue, records.DeleteTopic(topic.id))
    do(catalogue, gone)
    assert [known.node.id for known in catalogue.nodes()] == [NODE]
    assert refusal(catalogue, gone).code is ErrorCode.UNKNOWN_NODE
    itself = records.UnregisterNode(NODE, NODE)
    assert refusal(catalogue, itself).code is ErrorCode.POLICY_VIOLATION


def test_a_node_never_registers_under_an_incarnation_it_had() -> None:
    catalogue = catalogue_of(1)
    again = records.RegisterNode(Node(NODE, "host", 9092), 1, "dir-1")
    assert isinstance(refusal(catalogue, again), Fenced)


def test_a_cluster_keeps_its_name() -> None:
    catalogue = catalogue_of(1)
    do(catalogue, records.FormCluster("one"))
    assert catalogue.decide(records.FormCluster("one"), NOW_MS).facts == ()
    error = refusal(catalogue, records.FormCluster("two"))
    assert isinstance(error, InvalidRequest)
    assert "belongs to cluster one" in str(error)


def test_producer_ids_are_given_once() -> None:
    catalogue = catalogue_of(1, 2)
    assert do(catalogue, records.AllocateProducerIds(NODE, 1, 1000)) == (0, 1000)
    assert do(catalogue, records.AllocateProducerIds(NodeId(2), 1, 5)) == (1000, 1005)
    stale = records.AllocateProducerIds(NODE, 0, 5)
    assert isinstance(refusal(catalogue, stale), Fenced)
    assert isinstance(refusal(catalogue, records.AllocateProducerIds(NODE, 1, 0)), InvalidRequest)


# Streams


def test_sealing_opens_the_next_range_under_the_same_epoch() -> None:
    catalogue = catalogue_of(1)
    [stream] = create(catalogue, "t").streams
    stream = seal(catalogue, stream, 100)
    assert stream == catalogue.stream(stream.id)
    assert spans(stream) == [(0, 0, 100, 0), (1, 100, None, 0)]
    first = stream.ranges[0]
    assert (first.size_bytes, first.batch_count, first.max_timestamp) == (10, 1, 100)
    assert (first.max_timestamp_offset, first.sealed_ms) == (99, NOW_MS)


def test_a_repeated_seal_is_answered_as_the_first_was() -> None:
    catalogue = catalogue_of(1)
    [stream] = create(catalogue, "t").streams
    command = records.SealAndCreate("once", end_of(stream, 100))
    first = do(catalogue, command)
    again = catalogue.decide(command, NOW_MS + 5)
    assert again == ((), first)


def test_a_seal_that_is_repeated_after_a_restart_is_fenced() -> None:
    """The range it opened is sealed by now; its writer is gone and must not take it for open."""
    catalogue = catalogue_of(1)
    [stream] = create(catalogue, "t").streams
    command = records.SealAndCreate("once", end_of(stream, 100))
    restart(catalogue, end_of(do(catalogue, command), 120))
    assert isinstance(refusal(catalogue, command), Fenced)


def test_a_deleted_topic_leaves_nothing_behind_but_that_it_was_deleted() -> None:
    catalogue = catalogue_of(1)
    before = catalogue.state()
    [stream] = create(catalogue, "t").streams
    seal(catalogue, stream, 100)
    do(catalogue, records.DeleteTopic(stream.id.topic))
    assert catalogue.state() == replace(before, deleted=(stream.id.topic,))


def test_only_the_last_deleted_topics_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstem.placement.state.catalogue.DELETED_REMEMBERED_MAX", 2)
    catalogue = catalogue_of(1)
    for number in (1, 2, 3):
        create(catalogue, "t", number=number)
        do(catalogue, records.DeleteTopic(topic_id(number)))
    assert catalogue.state().deleted == (topic_id(2), topic_id(3))


def test_a_seal_of_a_range_that_is_no_longer_open_is_fenced() -> None:
    catalogue = catalogue_of(1)
    [stream] = create(catalogue, "t").streams
    seal(catalogue, stream, 100)
    late = records.SealAndCreate("other", end_of(stream, 200))
    assert refusal(catalogue, late).code is ErrorCode.FENCED_EPOCH


def test_a_writer_of_an_older_epoch_is_fenced_everywhere() -> None:
    catalogue = catalogue_of(1)
    [stream] = create(catalogue, "t").streams
    old = seal(catalogue, stream, 10)
    restart(catalogue, end_of(old, 20))
    commands: list[Command[Stream]] = [
        records.SealAndCreate("late", end_of(old, 30)),
        records.TrimStream(old.id, old.epoch, Offset(5)),
        records.SwapGeneration(old.id, old.epoch, RangeIndex(0), 0, 1, 5, 1, 5, 5),
        records.MergeRanges(old.id, old.epoch, RangeIndex(0), RangeIndex(1), 1, 5),
    ]
    for command in commands:
        assert isinstance(refusal(catalogue, command), Fenced)


def test_a_range_cannot_end_before_it_starts() -> None:
    catalogue = catalogue_of(1)
    [stream] = create(catalogue, "t").streams
    stream = seal(catalogue, stream, 100)
    error = refusal(catalogue, records.SealAndCreate("r", end_of(stream, 99)))
    assert error.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_restart_gives_every_stream_its_next_epoch_and_keeps_no_empty_range() -> None:
    catalogue = catalogue_of(1)
    full, empty, unused = create(catalogue, "t", partitions=3).streams
    after = restart(catalogue, end_of(full, 50), end_of(empty, 0))
    assert spans(after[0]) == [(0, 0, 50, 0), (1, 50, None, 1)]
    assert spans(after[1]) == [(1, 0, None, 1)]
    assert catalogue.stream(full.id) == after[0]
    assert catalogue.stream(unused.id) == unused
    [again] = restart(catalogue, end_of(after[0], 50))
    assert spans(again) == [(0, 0, 50, 0), (2, 50, None, 2)]


def test_a_restart_speaks_only_for_the_current_incarnation_and_its_own_streams() -> None:
    catalogue = catalogue_of(1, 2)
    command = records.CreateTopic(topic_id(1), "t", 2, 1, assignments=((NODE,), (NodeId(2),)))
    mine, theirs = do(catalogue, command).streams
    old = records.RestartStreams(NODE, 0, (end_of(mine, 5),))
    assert isinstance(refusal(catalogue, old), Fenced)
    foreign = records.RestartStreams(NODE, 1, (end_of(theirs, 5),))
    assert isinstance(refusal(catalogue, foreign), InvalidRequest)
    twice = records.RestartStreams(NODE, 1, (end_of(mine, 5), end_of(mine, 5)))
    assert isinstance(refusal(catalogue, twice), InvalidRequest)


def test_offsets_below_the_start_are_never_given_out_again() -> None:
    """Under flush.policy=written a power cut may take records that were trimmed already."""
    catalogue = catalogue_of(1)
    [stream] = create(catalogue, "t").streams
    stream = do(catalogue, records.TrimStream(stream.id, stream.epoch, Offset(80)))
    [stream] = restart(catalogue, end_of(stream, 60))
    assert spans(stream) == [(1, 80, None, 1)]
    assert stream.start == 80


def test_a_suspect_end_is_remembered() -> None:
    catalogue = catalogue_of(1)
    [stream] = create(catalogue, "t").streams
    end = RangeEnd(stream.id, Epoch(0), RangeIndex(0), Offset(7), suspect=True)
    [stream] = restart(catalogue, end)
    assert stream.ranges[0].suspect


def test_trimming_drops_whole_ranges_and_never_the_open_one() -> None:
    catalogue = catalogue_of(1)
    [stream] = create(catalogue, "t").streams
    for end in (10, 20, 30):
        stream = seal(catalogue, stream, end)
    stream = do(catalogue, records.TrimStream(stream.id, stream.epoch, Offset(15)))
    assert (stream.start, spans(stream)[0]) == (15, (1, 10, 20, 0))
    stream = do(catalogue, records.TrimStream(stream.id, stream.epoch, Offset(20)))
    assert spans(stream)[0] == (2, 20, 30, 0)
    stream = do(catalogue, records.TrimStream(stream.id, stream.epoch, Offset(35)))
    assert spans(stream) == [(3, 30, None, 0)]
    lower = catalogue.decide(records.TrimStream(stream.id, stream.epoch, Offset(3)), NOW_MS)
    assert lower == ((), stream)


def test_a_compacted_copy_takes_the_place_of_a_sealed_range() -> None:
    catalogue = catalogue_of(1)
    [stream] = create(catalogue, "t").streams
    stream = seal(catalogue, stream, 10)
    swap = records.SwapGeneration(stream.id, stream.epoch, RangeIndex(0), 0, 1, 4, 2, 8, 7)
    stream = do(catalogue, swap)
    copy = stream.ranges[0]
    assert (copy.generation, copy.size_bytes, copy.batch_count) == (1, 4, 2)
    assert (copy.max_timestamp, copy.max_timestamp_offset) == (8, 7)
    assert isinstance(refusal(catalogue, swap), Fenced), "it was made from generation 0"
    on_open = records.SwapGeneration(stream.id, stream.epoch, RangeIndex(1), 0, 1, 4, 2, 8, 7)
    assert isinstance(refusal(catalogue, on_open), Fenced)


def test_neighbours_merge_under_their_lowest_epoch() -> None:
    catalogue = catalogue_of(1)
    [stream] = create(catalogue, "t").streams
    for end in (10, 20, 30):
        [stream] = restart(catalogue, end_of(stream, end))
    merge = records.MergeRanges(stream.id, stream.epoch, RangeIndex(0), RangeIndex(1), 1, 19)
    stream = do(catalogue, merge)
    assert spans(stream) == [(0, 0, 20, 0), (2, 20, 30, 2), (3, 30, None, 3)]
    whole = stream.ranges[0]
    assert (whole.generation, whole.size_bytes, whole.batch_count) == (1, 19, 2)
    assert (whole.max_timestamp, whole.max_timestamp_offset) == (20, 19)


@pytest.mark.parametrize(("first", "last", "generation"), [(0, 0, 1), (0, 1, 0), (1, 0, 1)])
def test_a_merge_needs_two_ranges_and_a_new_generation(
    first: int, last: int, generation: int
) -> None:
    catalogue = catalogue_of(1)
    [stream] = create(catalogue, "t").streams
    for end in (10, 20):
        stream = seal(catalogue, stream, end)
    command = records.MergeRanges(
        stream.id, stream.epoch, RangeIndex(first), RangeIndex(last), generation, 5
    )
    assert isinstance(refusal(catalogue, command), InvalidRequest)


def test_the_open_range_is_never_merged() -> None:
    catalogue = catalogue_of(1)
    [stream] = create(catalogue, "t").streams
    stream = seal(catalogue, stream, 10)
    command = records.MergeRanges(stream.id, stream.epoch, RangeIndex(0), RangeIndex(1), 1, 5)
    assert isinstance(refusal(catalogue, command), Fenced)


def test_topics_are_restored_into_an_empty_catalogue_only() -> None:
    source = catalogue_of(1)
    topic = create(source, "t", partitions=2)
    target = catalogue_of(1)
    restore = records.RestoreTopics((topic,), source.next_producer_id)
    do(target, restore)
    assert target.topic("t") == topic
    assert isinstance(refusal(target, restore), InvalidRequest)


def test_a_deleted_topic_is_not_restored() -> None:
    catalogue = catalogue_of(1)
    deleted = create(catalogue, "a")
    do(catalogue, records.DeleteTopic(deleted.id))
    kept = create(catalogue_of(1), "b", number=2)
    do(catalogue, records.RestoreTopics((deleted, kept), ProducerId(0)))
    assert list(catalogue.topics()) == [kept]


def test_unknown_streams_are_refused() -> None:
    catalogue = catalogue_of(1)
    [stream] = create(catalogue, "t").streams
    do(catalogue, records.DeleteTopic(stream.id.topic))
    command = records.TrimStream(stream.id, stream.epoch, Offset(1))
    assert refusal(catalogue, command).code is ErrorCode.UNKNOWN_TOPIC_ID
