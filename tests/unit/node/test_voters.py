"""Who votes on the catalogue, step by step."""

from collections.abc import Collection

import pytest

from mainstem.cluster.raft.messages import ConfChange, ConfChangeType, StateType
from mainstem.cluster.raft.status import MemberStatus, RaftStatus
from mainstem.model.ids import NodeId
from mainstem.node.clustering.voters import MemberObservations, next_change

PROMOTE = ConfChangeType.ConfChangeAddNode
DEMOTE = ConfChangeType.ConfChangeAddLearnerNode
REMOVE = ConfChangeType.ConfChangeRemoveNode


def group(
    voters: Collection[int], learners: Collection[int] = (), *, behind: Collection[int] = ()
) -> RaftStatus:
    members = [
        MemberStatus(NodeId(n), n in learners, 7 if n in behind else 700, None, True)
        for n in (*voters, *learners)
    ]
    return RaftStatus(
        NodeId(1), StateType.StateLeader, 2, NodeId(1), 700, 700, 1, 700, 0, tuple(members)
    )


def machines(*numbers: int) -> dict[NodeId, str]:
    return {NodeId(n): f"machine-{n}" for n in numbers}


def step(kind: ConfChangeType, node: int) -> ConfChange:
    return ConfChange(kind, NodeId(node))


def test_two_nodes_have_one_voter() -> None:
    assert next_change(group([1], [2]), MemberObservations(machines(1, 2))) is None


def test_the_third_node_brings_two_voters_more() -> None:
    seen = MemberObservations(machines(1, 2, 3))
    assert next_change(group([1], [2, 3]), seen) == step(PROMOTE, 2)
    assert next_change(group([1, 2], [3]), seen) == step(PROMOTE, 3)
    assert next_change(group([1, 2, 3]), seen) is None


def test_nobody_becomes_the_second_voter_before_the_third_has_caught_up() -> None:
    seen = MemberObservations(machines(1, 2, 3, 4, 5))
    assert next_change(group([1], [2, 3], behind=[3]), seen) is None
    assert next_change(group([1, 2], [3], behind=[3]), seen) is None
    assert next_change(group([1], [2, 3, 4], behind=[2]), seen) == step(PROMOTE, 3)
    assert next_change(group([1, 2, 3], [4, 5], behind=[4]), seen) is None


def test_the_fourth_node_listens_and_the_fifth_makes_five_voters() -> None:
    assert next_change(group([1, 2, 3], [4]), MemberObservations(machines(1, 2, 3, 4))) is None
    seen = MemberObservations(machines(1, 2, 3, 4, 5))
    assert next_change(group([1, 2, 3], [4, 5]), seen) == step(PROMOTE, 4)


def test_nodes_of_one_machine_have_one_voter() -> None:
    shared = {NodeId(n): "one" for n in (1, 2, 3)}
    assert next_change(group([1], [2, 3]), MemberObservations(shared)) is None


def test_a_node_that_has_not_registered_does_not_vote() -> None:
    assert next_change(group([1], [2, 3]), MemberObservations(machines(1, 2))) is None


def test_a_voter_that_is_away_stays_while_nobody_can_take_its_place() -> None:
    seen = MemberObservations(machines(1, 2, 3), away={NodeId(3)})
    assert next_change(group([1, 2, 3]), seen) is None


def test_a_voter_that_is_away_is_replaced() -> None:
    seen = MemberObservations(machines(1, 2, 3, 4), away={NodeId(3)})
    assert next_change(group([1, 2, 3], [4]), seen) == step(PROMOTE, 4)
    assert next_change(group([1, 2, 3, 4]), seen) == step(DEMOTE, 3)


def test_half_way_to_three_the_second_voter_goes_when_the_third_dies() -> None:
    seen = MemberObservations(machines(1, 2, 3), away={NodeId(3)})
    assert next_change(group([1, 2], [3]), seen) == step(DEMOTE, 2)


def test_a_member_that_nobody_waits_for_is_removed() -> None:
    seen = MemberObservations(machines(1, 2, 3), gone=[NodeId(9)])
    assert next_change(group([1, 2, 3], [9]), seen) == step(REMOVE, 9)


@pytest.mark.parametrize("count", range(1, 9))
def test_any_number_of_nodes_ends_with_an_odd_number_of_voters(count: int) -> None:
    voters, learners = {1}, set(range(2, count + 1))
    seen = MemberObservations(machines(*range(1, count + 1)))
    for _ in range(20):
        change = next_change(group(sorted(voters), sorted(learners)), seen)
        if change is None:
            break
        voters, learners = voters | {change.node_id}, learners - {change.node_id}
    assert len(voters) == {1: 1, 2: 1, 3: 3, 4: 3}.get(count, 5)
