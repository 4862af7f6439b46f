"""Consumer groups, as far as the scenarios do not tell: refusals, bounds, policies, topics."""

from typing import Any

import pytest
from tests.kit.simulation.coordination.consumer_group_script import subscription_bytes
from tests.kit.simulation.coordination.group_simulator import GroupSimulator
from tests.kit.simulation.coordination.topic_list import TopicList

from mainstem.coordination.classic.consumer_protocol import assignment_bytes
from mainstem.coordination.consumer.heartbeat_handler import GROUP_BYTES_MAX, MEMBER_BYTES_MAX
from mainstem.coordination.consumer.requests import ConsumerAnswer, ConsumerHeartbeat
from mainstem.coordination.consumer.topics import GroupTopics
from mainstem.coordination.groups.requests import (
    CommitRequest,
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    OffsetToCommit,
    SyncRequest,
)
from mainstem.coordination.groups.settings import GroupSettings
from mainstem.model.errors import ErrorCode, MainstemError


def world(**settings: Any) -> GroupSimulator:
    defaults: dict[str, Any] = {"initial_rebalance_delay_ms": 0}
    return GroupSimulator(GroupSettings(**(defaults | settings)), TopicList({"t": 4}))


def beat(sim: GroupSimulator, member_id: str, epoch: int = 0, **said: Any) -> ConsumerAnswer:
    first: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "topics": ("t",), "owned": {}}
    request: dict[str, Any] = {"group_id": "g", "member_id": member_id, "epoch": epoch}
    return sim.consumer_heartbeat(
        ConsumerHeartbeat(**(request | (first if epoch == 0 else {}) | said))
    )


def classic(sim: GroupSimulator, member_id: str = "", **said: Any) -> int:
    names = said.pop("protocols", ("range",))
    metadata = said.pop("metadata", subscription_bytes(["t"], {}))
    request: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": tuple((name, metadata) for name in names),
        "member_id": member_id,
        "client_id": "c",
    }
    ticket = sim.join(JoinRequest(**(request | said)))
    sim.advance(0)
    return ticket


def joined(sim: GroupSimulator, ticket: int) -> JoinAnswer:
    answer = sim.answers[ticket]
    assert isinstance(answer, JoinAnswer)
    return answer


def refusal(act: Any, *args: Any, **kwargs: Any) -> ErrorCode:
    with pytest.raises(MainstemError) as refused:
        act(*args, **kwargs)
    return refused.value.code


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"member_id": "", "makes_id": True}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "", "epoch": 3}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "m" * 1_001}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"owned": None}, ErrorCode.INVALID_REQUEST),
        ({"topics": None}, ErrorCode.INVALID_REQUEST),
        ({"topics": ("t" * MEMBER_BYTES_MAX, "u")}, ErrorCode.INVALID_REQUEST),
        ({"assignor": "mine"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"pattern": "["}, ErrorCode.INVALID_PATTERN),
        ({"pattern": "(?=look)"}, ErrorCode.INVALID_PATTERN),
        ({"pattern": "x" * 5_000}, ErrorCode.INVALID_PATTERN),
        ({"epoch": 1, "topics": None}, ErrorCode.UNKNOWN_GROUP),
        ({"epoch": -1, "topics": None}, ErrorCode.UNKNOWN_GROUP),
    ],
)
def test_what_no_group_accepts_is_refused(said: dict[str, Any], code: ErrorCode) -> None:
    sim = world()
    asked = {"member_id": "a", "epoch": 0} | said
    assert refusal(beat, sim, **asked) is code
    assert sim.stored == []


def test_a_member_that_joins_with_partitions_is_refused() -> None:
    sim = world()
    owned = {sim.topics.id_of("t"): frozenset({0})}
    assert refusal(beat, sim, "a", owned=owned) is ErrorCode.INVALID_REQUEST


def test_older_clients_are_given_an_id() -> None:
    sim = world()
    first, second = beat(sim, ""), beat(sim, "")
    assert first.member_id != second.member_id
    assert first.member_id


def test_a_member_may_subscribe_to_nothing() -> None:
    sim = world()
    assert beat(sim, "a", topics=(), pattern="").assigned == {}
    assert beat(sim, "a", 1, topics=("t",)).epoch == 2


def test_answers_carry_partitions_only_where_they_changed_or_all_was_said() -> None:
    sim = world()
    everything = {sim.topics.id_of("t"): frozenset(range(4))}
    assert beat(sim, "a").assigned == everything
    assert beat(sim, "a", 1).assigned is None
    assert beat(sim, "a", 1, owned=everything).assigned is None
    said = {"rebalance_timeout_ms": 60_000, "topics": ("t",), "owned": everything}
    assert beat(sim, "a", 1, **said).assigned == everything
    assert beat(sim, "a", 1).heartbeat_interval_ms == 5_000


def test_a_group_may_have_times_of_its_own_within_bounds() -> None:
    sim = world()
    own = sim.topics.of_groups.setdefault("g", {})
    own |= {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "7000"}
    assert beat(sim, "a").heartbeat_interval_ms == 7_000
    assert sim.shard.describe_consumers("g").members[0].session_timeout_ms == 50_000
    sim.advance(49_999)
    assert sim.shard.describe_consumers("g").members
    # What was set under other bounds is kept within those of today.
    own |= {"consumer.session.timeout.ms": "1", "consumer.heartbeat.interval.ms": "99999"}
    assert beat(sim, "a", 1).heartbeat_interval_ms == 15_000
    sim.advance(44_999)
    assert sim.shard.describe_consumers("g").members
    sim.advance(1)
    assert not sim.shard.describe_consumers("g").members


def test_a_group_takes_only_so_many_members_and_bytes() -> None:
    sim = world(consumer_members_max=1)
    beat(sim, "a", instance_id="i")
    assert refusal(beat, sim, "b") is ErrorCode.GROUP_FULL
    assert refusal(classic, sim, "c-1") is ErrorCode.GROUP_FULL
    beat(sim, "a", -2, instance_id="i")
    assert beat(sim, "b", instance_id="i").epoch == 1  # a static member that comes back is not new
    large = world(consumer_members_max=10_000)
    topics = ("x" * (MEMBER_BYTES_MAX - 10),)
    for number in range(GROUP_BYTES_MAX // MEMBER_BYTES_MAX):
        beat(large, f"m{number}", topics=topics)
    assert refusal(beat, large, "n", topics=(*topics, "x")) is ErrorCode.GROUP_FULL


def test_a_topic_of_any_partition_count_changes_what_topics_look_like() -> None:
    listed = TopicList({"t": 1, "u": 1})
    topics = GroupTopics(listed)
    seen = {topics.hash(["t"]), topics.hash(["u"]), topics.hash(["t", "u"]), topics.hash(["x"])}
    assert topics.hash(["u", "t", "t"]) == topics.hash(["t", "u"])
    assert topics.hash(["x"]) == 0
    listed.counts["t"] = 2
    seen.add(topics.hash(["t"]))
    listed.recreate("t", 2)
    seen.add(topics.hash(["t"]))
    assert len(seen) == 6


def test_topics_nobody_reads_concern_nobody() -> None:
    sim = world()
    beat(sim, "a")
    beat(sim, "b", pattern="app[.].*", topics=())
    group = sim.shard.consumers.get("g")
    assert group is not None
    for name, concerns in (("x", False), ("t", True), ("app.x", True), ("app", False)):
        group.is_stale = False
        sim.shard.consumers.topic_changed(name)
        assert group.is_stale is concerns, name
    beat(sim, "a", 1, topics=("u",))
    beat(sim, "b", -1)
    for name, concerns in (("t", False), ("u", True), ("app.x", False)):
        group.is_stale = False
        sim.shard.consumers.topic_changed(name)
        assert group.is_stale is concerns, name


def test_positions_of_topics_a_group_reads_stay() -> None:
    sim = world()
    sim.topics.counts["app.x"] = 1
    beat(sim, "a", pattern="app[.].*")
    offsets = tuple(OffsetToCommit(topic, 0, 1) for topic in ("t", "u", "app.x"))
    request = CommitRequest(
        group_id="g", offsets=offsets, generation=1, member_id="a", reports_unknown_group=True
    )
    assert sim.commit(request) == [None] * 3
    outcomes, _ = sim.shard.delete_offsets("g", [("t", 0), ("u", 0), ("app.x", 0)])
    assert outcomes == [ErrorCode.GROUP_SUBSCRIBED, None, ErrorCode.GROUP_SUBSCRIBED]
    week_ms = GroupSettings().offsets_retention_ms
    sim.store(sim.shard.expire(sim.now().wall_ms + week_ms))
    assert {(o.topic, o.partition) for o in sim.shard.offsets.fetch("g", None)} == {
        ("t", 0),
        ("app.x", 0),
    }
    assert refusal(sim.shard.delete_group, "g") is ErrorCode.GROUP_NOT_EMPTY
    beat(sim, "a", -1)
    sim.store(sim.shard.expire(sim.now().wall_ms + week_ms))
    assert not sim.shard.has("g")
    assert sim.rebuilt().group_count == 0


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"generation": 7, "member_id": "a"}, ErrorCode.STALE_MEMBER_EPOCH),
        ({"generation": 1, "member_id": "x"}, ErrorCode.UNKNOWN_MEMBER),
        ({}, ErrorCode.UNKNOWN_MEMBER),
        (
            {"generation": 1, "member_id": "a", "reports_unknown_group": False},
            ErrorCode.UNSUPPORTED_VERSION,
        ),
    ],
)
def test_only_members_in_their_epoch_commit(said: dict[str, Any], code: ErrorCode) -> None:
    sim = world()
    beat(sim, "a")
    defaults: dict[str, Any] = {"group_id": "g", "offsets": (), "reports_unknown_group": True}
    assert refusal(sim.commit, CommitRequest(**(defaults | said))) is code


def test_tools_commit_to_a_group_without_members() -> None:
    sim = world()
    beat(sim, "a")
    beat(sim, "a", -1)
    offsets = (OffsetToCommit("t", 0, 5),)
    assert sim.commit(CommitRequest(group_id="g", offsets=offsets)) == [None]
    assert sim.rebuilt().offsets.of("g") == sim.shard.offsets.of("g")


def test_a_group_that_only_kept_positions_becomes_a_consumer_group() -> None:
    sim = world()
    offsets = (OffsetToCommit("t", 0, 5),)
    sim.commit(CommitRequest(group_id="g", offsets=offsets))
    assert [line.type for line in sim.shard.list(frozenset(), frozenset())] == ["classic"]
    beat(sim, "a")
    assert [line.type for line in sim.shard.list(frozenset(), frozenset())] == ["consumer"]
    assert sim.shard.list(frozenset({"stable"}), frozenset({"classic"})) == []
    assert sim.shard.offsets.fetch("g", None)[0].committed.offset == 5
    rebuilt = sim.rebuilt()
    assert (rebuilt.groups.get("g"), rebuilt.group_count) == (None, 1)


def test_positions_outlive_a_group_that_makes_way_for_a_classic_one() -> None:
    sim = world()
    beat(sim, "a")
    offsets = (OffsetToCommit("t", 0, 5),)
    sim.commit(
        CommitRequest(
            group_id="g", offsets=offsets, generation=1, member_id="a", reports_unknown_group=True
        )
    )
    beat(sim, "a", -1)
    assert refusal(classic, sim, "claimed") is ErrorCode.UNKNOWN_MEMBER
    assert refusal(classic, sim, protocol_type="") is ErrorCode.INCONSISTENT_PROTOCOL
    assert sim.shard.has("g")
    assert sim.shard.offsets.fetch("g", None)[0].committed.offset == 5
    assert joined(sim, classic(sim)).generation == 1


def test_descriptions_of_one_kind_are_refused_for_the_other() -> None:
    sim = world()
    beat(sim, "a")
    assert refusal(sim.shard.describe, "g") is ErrorCode.UNKNOWN_GROUP
    beat(sim, "a", -1)
    classic(sim)
    assert refusal(sim.shard.describe_consumers, "g") is ErrorCode.UNKNOWN_GROUP
    assert refusal(sim.shard.describe_consumers, "x") is ErrorCode.UNKNOWN_GROUP


@pytest.mark.parametrize("policy", ["downgrade", "disabled"])
def test_a_policy_may_forbid_the_upgrade(policy: str) -> None:
    sim = world(consumer_migration_policy=policy)
    classic(sim)
    assert refusal(beat, sim, "a") is ErrorCode.UNKNOWN_GROUP
    assert sim.shard.describe("g").members


@pytest.mark.parametrize("policy", ["upgrade", "disabled"])
def test_a_policy_may_forbid_the_downgrade(policy: str) -> None:
    sim = world(consumer_migration_policy=policy)
    beat(sim, "a")
    member_id = joined(sim, classic(sim)).member_id
    beat(sim, "a", -1)
    group = sim.shard.describe_consumers("g")
    assert [member.member_id for member in group.members] == [member_id]


def test_classic_members_left_alone_in_a_consumer_group_follow_their_topics() -> None:
    sim = world(consumer_migration_policy="upgrade")
    beat(sim, "a")
    member_id = joined(sim, classic(sim)).member_id
    beat(sim, "a", -1)
    again = joined(sim, classic(sim, member_id))
    live = HeartbeatRequest(group_id="g", generation=again.generation, member_id=member_id)
    sim.heartbeat(live)
    sim.topics.counts["t"] = 6
    sim.shard.consumers.topic_changed("t")
    assert refusal(sim.heartbeat, live) is ErrorCode.REBALANCE_IN_PROGRESS
    assert joined(sim, classic(sim, member_id)).generation == again.generation + 1
    [member] = sim.shard.describe_consumers("g").members
    assert sum(map(len, member.assigned.values())) == 6


def test_a_group_of_another_kind_of_members_is_not_upgraded() -> None:
    sim = world()
    classic(sim, protocol_type="connect")
    assert refusal(beat, sim, "a") is ErrorCode.UNKNOWN_GROUP


def test_metadata_nobody_can_read_stops_an_upgrade() -> None:
    sim = world()
    classic(sim, metadata=b"\x00")
    assert refusal(beat, sim, "a") is ErrorCode.UNKNOWN_GROUP


def test_what_an_assignor_of_its_own_remembers_stops_an_upgrade() -> None:
    sim = world()
    member_id = joined(sim, classic(sim)).member_id
    given = assignment_bytes({"t": frozenset({0})}, 0)[:-4] + b"\x00\x00\x00\x01x"
    sync = SyncRequest(
        group_id="g", generation=1, member_id=member_id, assignments=((member_id, given),)
    )
    sim.sync(sync)
    assert refusal(beat, sim, "a") is ErrorCode.UNKNOWN_GROUP


def test_who_waits_in_a_classic_group_is_asked_to_join_again() -> None:
    sim = world()
    first = joined(sim, classic(sim)).member_id
    waits = classic(sim)
    beat(sim, "a")
    refused = sim.answers[waits]
    assert isinstance(refused, MainstemError)
    assert refused.code is ErrorCode.REBALANCE_IN_PROGRESS
    group = sim.shard.describe_consumers("g")
    assert len(group.members) == 3
    assert {m.is_classic for m in group.members if m.member_id != "a"} == {True}
    assert first in {m.member_id for m in group.members}


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_PROTOCOL),
        ({"protocols": ("sticky",)}, ErrorCode.INCONSISTENT_PROTOCOL),
        ({"metadata": b"\x00"}, ErrorCode.INCONSISTENT_PROTOCOL),
        ({"id_required": True}, ErrorCode.MEMBER_ID_REQUIRED),
        ({"instance_id": "i", "member_id": "x"}, ErrorCode.UNKNOWN_MEMBER),
    ],
)
def test_classic_members_that_do_not_fit_are_refused(said: dict[str, Any], code: ErrorCode) -> None:
    sim = world()
    beat(sim, "a")
    classic(sim)
    assert refusal(classic, sim, **said) is code


def test_classic_members_of_a_consumer_group_are_checked_as_ever() -> None:
    sim = world()
    beat(sim, "a", instance_id="ia")
    member_id = joined(sim, classic(sim, instance_id="ic")).member_id

    def live(member: str, number: int, instance: str | None = None) -> None:
        sim.heartbeat(
            HeartbeatRequest(
                group_id="g", generation=number, member_id=member, instance_id=instance
            )
        )

    def sync(**said: Any) -> int:
        defaults: dict[str, Any] = {"group_id": "g", "generation": 2, "member_id": member_id}
        return sim.sync(SyncRequest(**(defaults | said)))

    assert refusal(live, "x", 2) is ErrorCode.UNKNOWN_MEMBER
    assert refusal(live, "a", 1) is ErrorCode.UNKNOWN_MEMBER  # not one of the classic protocol
    assert refusal(live, member_id, 1) is ErrorCode.ILLEGAL_GENERATION
    assert refusal(live, "x", 2, "ic") is ErrorCode.FENCED_MEMBER
    assert refusal(live, "x", 2, "no") is ErrorCode.UNKNOWN_MEMBER
    assert refusal(sync, protocol_name="sticky") is ErrorCode.INCONSISTENT_PROTOCOL
    assert refusal(sync, protocol_type="connect") is ErrorCode.INCONSISTENT_PROTOCOL
    assert sync(protocol_type="consumer", protocol_name="range")
    assert sim.leave(
        "g",
        [LeavingMember("x"), LeavingMember("", "no"), LeavingMember("x", "ic"), LeavingMember("a")],
    ) == [
        ErrorCode.UNKNOWN_MEMBER,
        ErrorCode.UNKNOWN_MEMBER,
        ErrorCode.FENCED_MEMBER,
        ErrorCode.UNKNOWN_MEMBER,
    ]
    assert sim.leave("g", [LeavingMember("", "ic"), LeavingMember(member_id)]) == [None, None]
    assert len(sim.shard.describe_consumers("g").members) == 1


def test_a_classic_member_whose_epoch_is_over_cannot_sync() -> None:
    sim = world()
    beat(sim, "a")
    member_id = joined(sim, classic(sim)).member_id
    beat(sim, "b")
    sync = SyncRequest(group_id="g", generation=2, member_id=member_id)
    assert refusal(sim.sync, sync) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_classic_member_that_does_not_sync_is_removed() -> None:
    sim = world()
    beat(sim, "a")
    member_id = joined(sim, classic(sim, rebalance_timeout_ms=5_000)).member_id
    sim.advance(4_999)
    assert len(sim.shard.describe_consumers("g").members) == 2
    sim.advance(1)
    assert member_id not in {m.member_id for m in sim.shard.describe_consumers("g").members}


def test_a_classic_member_that_does_not_join_when_asked_is_removed() -> None:
    sim = world()
    beat(sim, "a")
    member_id = joined(sim, classic(sim, rebalance_timeout_ms=5_000)).member_id
    sim.sync(SyncRequest(group_id="g", generation=2, member_id=member_id))
    beat(sim, "b")
    live = HeartbeatRequest(group_id="g", generation=2, member_id=member_id)
    assert refusal(sim.heartbeat, live) is ErrorCode.REBALANCE_IN_PROGRESS
    sim.advance(3_000)
    assert refusal(sim.heartbeat, live) is ErrorCode.REBALANCE_IN_PROGRESS
    sim.advance(2_000)
    assert refusal(sim.heartbeat, live) is ErrorCode.UNKNOWN_MEMBER


def test_a_downgraded_group_remembers_all_that_its_members_support() -> None:
    sim = world()
    beat(sim, "a")
    member_id = joined(sim, classic(sim, protocols=("range", "sticky"))).member_id
    beat(sim, "a", -1)
    group = sim.shard.groups.get("g")
    assert group is not None
    assert [name for name, _ in group.members[member_id].protocols] == ["range", "sticky"]


def test_a_static_member_that_returns_by_the_classic_protocol_makes_the_group_rebalance() -> None:
    sim = world()
    beat(sim, "a", instance_id="i")
    member_id = joined(sim, classic(sim)).member_id
    back = joined(sim, classic(sim, instance_id="i"))
    group = sim.shard.groups.get("g")
    assert group is not None
    assert set(group.members) == {member_id, back.member_id}
    assert group.state.value == "PreparingRebalance", "the other one has not taken its part yet"


def test_the_votes_of_members_choose_the_assignor() -> None:
    sim = world()
    beat(sim, "a", assignor="range")
    beat(sim, "b", assignor="uniform")
    assert sim.shard.describe_consumers("g").assignor == "range", "the first of the alphabet"
    beat(sim, "c", assignor="uniform")
    assert sim.shard.describe_consumers("g").assignor == "uniform"


def test_a_departure_lets_expressions_find_nothing_new() -> None:
    sim = world()
    sim.topics.counts |= {"app.a": 1, "app.b": 1}
    only_a: dict[str, Any] = {
        "pattern": "app[.].*",
        "topics": (),
        "may_see": lambda name: name == "app.a",
    }
    held = beat(sim, "a", **only_a)
    beat(sim, "b", **only_a)
    sim.shard.consumers.topic_changed("app.b")
    beat(sim, "b", -1)
    group = sim.shard.consumers.get("g")
    assert group is not None
    assert list(group.patterns["app[.].*"].topics) == ["app.a"]
    assert group.is_stale, "who asks next looks again, with its own rights"
    beat(sim, "a", held.epoch, owned=held.assigned)
    assert list(group.patterns["app[.].*"].topics) == ["app.a", "app.b"]
