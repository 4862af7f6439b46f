"""Membership of one group, story by story. The usual course is in tests/scenarios/group_*.txt."""

from typing import Any

import pytest
from tests.kit.simulation.coordination.group_simulator import GroupSimulator

from mainstem.coordination.classic.group import Group, GroupState
from mainstem.coordination.groups.requests import (
    HeartbeatRequest,
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    SyncAnswer,
    SyncRequest,
)
from mainstem.coordination.groups.settings import GroupSettings
from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.model.limits import GROUP_METADATA_BYTES_MAX

DELAY_MS = 3_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000
FIRST_WAIT_MS = 2 * DELAY_MS  # once more for those who came meanwhile


def simulate(**settings: Any) -> GroupSimulator:
    return GroupSimulator(GroupSettings(**({"initial_rebalance_delay_ms": DELAY_MS} | settings)))


def request(member_id: str = "", *, prefers: str = "range", **changes: Any) -> JoinRequest:
    given: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": REBALANCE_MS,
        "protocol_type": "consumer",
        "protocols": tuple((name, b"") for name in prefers.split()),
        "member_id": member_id,
        "client_id": "c",
    }
    return JoinRequest(**(given | changes))


def group_of(sim: GroupSimulator) -> Group:
    group = sim.shard.groups.get("g")
    assert group is not None
    return group


def joined(sim: GroupSimulator, ticket: int) -> JoinAnswer:
    answer = sim.answers[ticket]
    assert isinstance(answer, JoinAnswer)
    return answer


def refusal(sim: GroupSimulator, ticket: int) -> ErrorCode:
    answer = sim.answers[ticket]
    assert isinstance(answer, MainstemError)
    return answer.code


def sync(sim: GroupSimulator, member_id: str, **changes: Any) -> int:
    given: dict[str, Any] = {
        "group_id": "g",
        "generation": group_of(sim).generation,
        "member_id": member_id,
    }
    return sim.sync(SyncRequest(**(given | changes)))


def beat(sim: GroupSimulator, member_id: str) -> None:
    number = group_of(sim).generation
    sim.heartbeat(HeartbeatRequest(group_id="g", generation=number, member_id=member_id))


def stable(sim: GroupSimulator, count: int, **changes: Any) -> list[str]:
    """A stable group of that many members, the leader first."""
    for _ in range(count):
        sim.join(request(**changes))
    sim.advance(FIRST_WAIT_MS)
    group = group_of(sim)
    members = list(group.members)
    assert group.leader == members[0]
    assignments = tuple((member_id, member_id.encode()) for member_id in members)
    for member_id in members:
        sync(sim, member_id, assignments=assignments)
    assert group.state is GroupState.STABLE
    return members


def test_the_protocol_that_all_support_and_most_prefer_is_chosen() -> None:
    sim = simulate()
    for prefers in ("range sticky", "sticky range", "sticky cooperative range", "range sticky"):
        sim.join(request(prefers=prefers))
    sim.advance(FIRST_WAIT_MS)
    assert group_of(sim).protocol_name == "range"
    sim.join(request(prefers="sticky range"))
    for member_id in list(group_of(sim).members)[:4]:
        sim.join(
            request(
                member_id,
                prefers=" ".join(n for n, _ in group_of(sim).members[member_id].protocols),
            )
        )
    assert group_of(sim).protocol_name == "sticky"


def test_consumers_move_to_a_new_protocol_one_by_one() -> None:
    """The two rolling restarts by which consumers go from eager to cooperative rebalancing."""
    sim = simulate()
    first, second = stable(sim, 2, prefers="range")
    for prefers, chosen in (
        (("cooperative range", "range"), "range"),
        (("cooperative range", "cooperative range"), "cooperative"),
        (("cooperative", "cooperative range"), "cooperative"),
    ):
        sim.join(request(first, prefers=prefers[0]))
        sim.join(request(second, prefers=prefers[1]))
        assert group_of(sim).protocol_name == chosen
        for member_id in (first, second):
            sync(sim, member_id)


@pytest.mark.parametrize(
    "changes",
    [{"protocol_type": "connect"}, {"prefers": "sticky"}, {"protocols": ()}],
    ids=["kind", "protocol", "nothing"],
)
def test_a_member_that_does_not_fit_is_refused(changes: dict[str, Any]) -> None:
    sim = simulate()
    stable(sim, 1)
    with pytest.raises(MainstemError) as refused:
        sim.join(request(**changes))
    assert refused.value.code is ErrorCode.INCONSISTENT_PROTOCOL
    assert group_of(sim).state is GroupState.STABLE


@pytest.mark.parametrize("changes", [{"protocol_type": ""}, {"protocols": ()}])
def test_a_refused_first_join_leaves_no_group_behind(changes: dict[str, Any]) -> None:
    sim = simulate()
    with pytest.raises(MainstemError) as refused:
        sim.join(request(**changes))
    assert refused.value.code is ErrorCode.INCONSISTENT_PROTOCOL
    assert sim.shard.groups.get("g") is None


@pytest.mark.parametrize("timeout_ms", [5_999, 1_800_001, -1])
def test_session_timeouts_have_bounds(timeout_ms: int) -> None:
    with pytest.raises(MainstemError) as refused:
        simulate().join(request(session_timeout_ms=timeout_ms))
    assert refused.value.code is ErrorCode.INVALID_SESSION_TIMEOUT


@pytest.mark.parametrize(
    "changes",
    [
        {"protocols": (("range", b""), ("range", b""))},
        {"protocols": (("r" * 1_001, b""),)},
        {"protocol_type": "t" * 1_001},
        {"instance_id": "i" * 250},
    ],
)
def test_names_have_bounds(changes: dict[str, Any]) -> None:
    with pytest.raises(MainstemError) as refused:
        simulate().join(request(**changes))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_an_unknown_member_of_an_unknown_group_is_unknown() -> None:
    sim = simulate()
    for ask in (
        lambda: sim.join(request("m")),
        lambda: sim.sync(SyncRequest(group_id="g", generation=1, member_id="m")),
        lambda: sim.heartbeat(HeartbeatRequest(group_id="g", generation=1, member_id="m")),
        lambda: sim.leave("g", [LeavingMember("m")]),
    ):
        with pytest.raises(MainstemError) as refused:
            ask()
        assert refused.value.code is ErrorCode.UNKNOWN_MEMBER


def test_the_first_wait_is_prolonged_by_newcomers_up_to_the_rebalance_timeout() -> None:
    sim = simulate()
    first = sim.join(request(rebalance_timeout_ms=8_000))
    for _ in range(3):
        sim.advance(2_500)
        sim.join(request(rebalance_timeout_ms=8_000))
    assert first not in sim.answers
    sim.advance(1_500)
    assert len(joined(sim, first).members) == 4


def test_an_id_that_nobody_comes_back_with_is_taken_back() -> None:
    sim = simulate()
    sim.join(request(id_required=True))
    [pending] = group_of(sim).pending
    sim.advance(SESSION_MS)
    assert not group_of(sim).pending
    with pytest.raises(MainstemError) as refused:
        sim.join(request(pending))
    assert refused.value.code is ErrorCode.UNKNOWN_MEMBER


def test_a_rebalance_waits_for_ids_that_were_handed_out() -> None:
    sim = simulate()
    [member_id] = stable(sim, 1)
    sim.join(request(id_required=True))
    again = sim.join(request(member_id))
    assert again not in sim.answers
    sim.advance(SESSION_MS)
    assert joined(sim, again).generation == 2


def test_a_pending_member_may_leave() -> None:
    sim = simulate()
    sim.join(request(id_required=True))
    [pending] = group_of(sim).pending
    assert sim.leave("g", [LeavingMember(pending)]) == [None]
    assert group_of(sim).is_empty


def test_a_member_that_does_not_join_in_time_is_out() -> None:
    sim = simulate()
    leader, other = stable(sim, 2, session_timeout_ms=120_000)
    again = sim.join(request(leader))
    sim.advance(REBALANCE_MS - 1)
    assert again not in sim.answers
    sim.advance(1)
    assert [m.member_id for m in joined(sim, again).members] == [leader]
    with pytest.raises(MainstemError) as refused:
        beat(sim, other)
    assert refused.value.code is ErrorCode.UNKNOWN_MEMBER


def test_another_member_leads_when_the_leader_does_not_join_in_time() -> None:
    sim = simulate()
    leader, other = stable(sim, 2, session_timeout_ms=120_000)
    again = sim.join(request(other, prefers="range sticky"))
    sim.advance(REBALANCE_MS)
    assert joined(sim, again).leader == other
    assert leader not in group_of(sim).members


def test_a_static_member_keeps_its_place_in_a_rebalance_it_sleeps_through() -> None:
    sim = simulate()
    leader, sleeper = (
        stable(sim, 1)[0],
        sim.join(request(instance_id="i", session_timeout_ms=200_000)),
    )
    sim.join(request(leader))
    sync(sim, leader)
    sleeper_id = joined(sim, sleeper).member_id
    sync(sim, sleeper_id)
    again = sim.join(request(leader))
    for _ in range(REBALANCE_MS // SESSION_MS):
        sim.advance(SESSION_MS)
    assert {m.member_id for m in joined(sim, again).members} == {leader, sleeper_id}


def test_a_generation_needs_somebody_who_joined() -> None:
    """All that are left are static members that sleep: they are waited for until they are gone."""
    sim = simulate()
    [static] = stable(sim, 1, instance_id="i", session_timeout_ms=200_000)
    newcomer = sim.join(request())
    assert sim.leave("g", [LeavingMember(list(group_of(sim).members)[1])]) == [None]
    assert refusal(sim, newcomer) is ErrorCode.UNKNOWN_MEMBER
    sim.advance(REBALANCE_MS)
    assert group_of(sim).state is GroupState.PREPARING
    assert list(group_of(sim).members) == [static]
    sim.advance(200_000)
    assert group_of(sim).state is GroupState.EMPTY


def test_members_that_never_ask_for_their_assignment_are_out() -> None:
    sim = simulate()
    sim.join(request(session_timeout_ms=120_000))
    sim.join(request(session_timeout_ms=120_000))
    sim.advance(FIRST_WAIT_MS)
    leader, silent = group_of(sim).members
    mine = sync(sim, leader, assignments=((leader, b"x"),))
    assert isinstance(sim.answers[mine], SyncAnswer)
    sim.advance(REBALANCE_MS)
    assert group_of(sim).state is GroupState.PREPARING
    assert silent not in group_of(sim).members


def test_a_follower_that_joins_again_unchanged_disturbs_nobody() -> None:
    sim = simulate()
    leader, follower = stable(sim, 2)
    again = joined(sim, sim.join(request(follower)))
    assert (again.generation, again.leader, again.members) == (1, leader, ())
    assert group_of(sim).state is GroupState.STABLE


def test_a_leader_that_joins_again_starts_a_rebalance() -> None:
    sim = simulate()
    leader, follower = stable(sim, 2)
    sim.join(request(leader))
    assert group_of(sim).state is GroupState.PREPARING
    with pytest.raises(MainstemError) as refused:
        beat(sim, follower)
    assert refused.value.code is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_lost_join_answer_can_be_asked_for_again() -> None:
    sim = simulate()
    sim.join(request())
    sim.advance(DELAY_MS)
    [leader] = group_of(sim).members
    again = joined(sim, sim.join(request(leader)))
    assert (again.generation, len(again.members)) == (1, 1)


def test_a_second_join_of_the_same_member_releases_the_first() -> None:
    sim = simulate()
    leader, _ = stable(sim, 2)
    first = sim.join(request(leader))
    second = sim.join(request(leader))
    assert refusal(sim, first) is ErrorCode.REBALANCE_IN_PROGRESS
    assert second not in sim.answers


def test_a_second_sync_of_the_same_member_releases_the_first() -> None:
    sim = simulate()
    for _ in range(2):
        sim.join(request())
    sim.advance(FIRST_WAIT_MS)
    _, follower = group_of(sim).members
    first = sync(sim, follower)
    second = sync(sim, follower)
    assert refusal(sim, first) is ErrorCode.REBALANCE_IN_PROGRESS
    assert second not in sim.answers


def test_a_member_that_leaves_releases_its_own_parked_requests() -> None:
    sim = simulate()
    for _ in range(2):
        sim.join(request())
    sim.advance(FIRST_WAIT_MS)
    _, follower = group_of(sim).members
    parked = sync(sim, follower)
    sim.leave("g", [LeavingMember(follower)])
    assert refusal(sim, parked) is ErrorCode.UNKNOWN_MEMBER


def test_a_newcomer_during_the_sync_phase_sends_everybody_back_to_join() -> None:
    sim = simulate()
    for _ in range(2):
        sim.join(request())
    sim.advance(FIRST_WAIT_MS)
    _, follower = group_of(sim).members
    parked = sync(sim, follower)
    sim.join(request())
    assert refusal(sim, parked) is ErrorCode.REBALANCE_IN_PROGRESS
    assert group_of(sim).state is GroupState.PREPARING


def test_a_static_member_that_returns_during_the_sync_phase_starts_over() -> None:
    sim = simulate()
    sim.join(request(instance_id="i"))
    sim.join(request())
    sim.advance(FIRST_WAIT_MS)
    returned = sim.join(request(instance_id="i"))
    assert group_of(sim).state is GroupState.PREPARING
    assert returned not in sim.answers


def test_a_static_member_that_returns_with_another_protocol_starts_a_rebalance() -> None:
    sim = simulate()
    stable(sim, 1, instance_id="i", prefers="range sticky")
    returned = joined(sim, sim.join(request(instance_id="i", prefers="sticky range")))
    assert (returned.generation, returned.protocol_name) == (2, "sticky")


def test_a_static_member_that_returns_cannot_when_nothing_can_be_stored() -> None:
    sim = simulate()
    [old] = stable(sim, 1, instance_id="i")
    sim.is_full = True
    assert refusal(sim, sim.join(request(instance_id="i"))) is ErrorCode.COORDINATOR_UNAVAILABLE
    beat(sim, old)


def test_a_static_member_that_returns_brings_its_new_metadata() -> None:
    sim = simulate()
    stable(sim, 1, instance_id="i")
    sim.join(request(instance_id="i", protocols=(("range", b"new"),), client_id="d"))
    sim.restart()
    [member] = sim.shard.describe("g").members
    assert (member.metadata, member.client_id) == (b"new", "d")


@pytest.mark.parametrize(
    "changes", [{"protocol_type": "connect"}, {"protocol_name": "sticky"}], ids=["kind", "protocol"]
)
def test_a_sync_for_another_protocol_is_refused(changes: dict[str, str]) -> None:
    sim = simulate()
    [member_id] = stable(sim, 1)
    with pytest.raises(MainstemError) as refused:
        sync(sim, member_id, **changes)
    assert refused.value.code is ErrorCode.INCONSISTENT_PROTOCOL


def test_assignments_that_no_record_could_hold_are_refused() -> None:
    sim = simulate()
    sim.join(request())
    sim.advance(DELAY_MS)
    [leader] = group_of(sim).members
    with pytest.raises(MainstemError) as refused:
        sync(sim, leader, assignments=((leader, bytes(GROUP_METADATA_BYTES_MAX + 1)),))
    assert refused.value.code is ErrorCode.RECORD_TOO_LARGE
    sync(sim, leader, assignments=((leader, b"less"),))
    assert group_of(sim).state is GroupState.STABLE


def test_a_full_group_takes_nobody_and_keeps_its_members() -> None:
    sim = simulate(members_max=2)
    leader, follower = stable(sim, 2)
    assert refusal(sim, sim.join(request())) is ErrorCode.GROUP_FULL
    assert refusal(sim, sim.join(request(id_required=True))) is ErrorCode.GROUP_FULL
    assert group_of(sim).state is GroupState.STABLE
    sim.join(request(leader))
    sim.join(request(follower))
    assert group_of(sim).generation == 2


def test_metadata_beyond_what_a_group_may_hold_is_refused() -> None:
    sim = simulate()
    half = (("range", bytes(GROUP_METADATA_BYTES_MAX // 2 - 100)),)
    for _ in range(2):
        assert sim.join(request(protocols=half)) not in sim.answers
    little = (("range", bytes(200)),)
    assert refusal(sim, sim.join(request(protocols=little))) is ErrorCode.GROUP_FULL


def test_ids_are_not_handed_out_without_end() -> None:
    sim = simulate(members_max=3)
    tickets = [sim.join(request(id_required=True)) for _ in range(4)]
    codes = [refusal(sim, ticket) for ticket in tickets]
    assert codes == [ErrorCode.MEMBER_ID_REQUIRED] * 3 + [ErrorCode.GROUP_FULL]


def test_a_loaded_group_that_is_too_large_sheds_its_last_members() -> None:
    sim = simulate()
    members = stable(sim, 3)
    sim.settings = GroupSettings(members_max=2)
    sim.restart()
    tickets = [sim.join(request(member_id)) for member_id in members]
    assert refusal(sim, tickets[2]) is ErrorCode.GROUP_FULL
    assert len(joined(sim, tickets[0]).members) == 2


def test_loaded_members_have_a_session_to_show_that_they_live() -> None:
    sim = simulate()
    first, _ = stable(sim, 2)
    sim.restart()
    sim.advance(SESSION_MS - 1)
    beat(sim, first)
    sim.advance(1)
    assert list(group_of(sim).members) == [first]


def test_the_last_stored_metadata_of_a_member_counts_after_a_restart() -> None:
    sim = simulate()
    [member_id] = stable(sim, 1, prefers="sticky")
    sim.join(request(member_id, protocols=(("range", b"new"), ("sticky", b""))))
    sync(sim, member_id)
    sim.restart()
    assert group_of(sim).members[member_id].protocols == (("range", b"new"),)
    assert joined(sim, sim.join(request(member_id, prefers="range"))).generation == 3


def test_a_long_client_id_is_cut_so_that_it_can_be_stored() -> None:
    sim = simulate()
    [member_id] = stable(sim, 1, client_id="\U0001f600" * 10_000)
    assert len(member_id) < 5_000
    sim.restart()
    assert list(group_of(sim).members) == [member_id]
