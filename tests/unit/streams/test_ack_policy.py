"""How many replicas acknowledge, and how many a new writer must ask."""

import pytest

from mainstem.model.errors import ErrorCode, InvalidRequest, Unavailable
from mainstem.model.ids import Offset
from mainstem.streams.ack_policy import AckPolicy, policy_for


@pytest.mark.parametrize(
    ("replicas", "acks", "fence_answers", "losses"),
    [(3, 2, 2, 1), (3, 3, 1, 2), (2, 1, 2, 0), (2, 2, 1, 1), (5, 3, 3, 2), (1, 1, 1, 0)],
)
def test_a_policy_says_what_a_fail_over_needs(
    replicas: int, acks: int, fence_answers: int, losses: int
) -> None:
    policy = AckPolicy(replicas, acks)
    assert policy.fence_answers_min == fence_answers
    assert policy.losses_tolerated == losses


def test_committed_is_what_enough_replicas_hold() -> None:
    ends = [Offset(end) for end in (9, 4, 7, 1, 8)]
    assert AckPolicy(5, 1).committed(ends) == 9
    assert AckPolicy(5, 3).committed(ends) == 7
    assert AckPolicy(5, 5).committed(ends) == 1


def test_the_fewer_answer_the_larger_is_the_end_that_is_taken() -> None:
    policy = AckPolicy(5, 3)
    assert policy.recovered_end([Offset(end) for end in (9, 4, 7, 1, 8)]) == 7
    assert policy.recovered_end([Offset(end) for end in (4, 7, 1, 8)]) == 7
    assert policy.recovered_end([Offset(end) for end in (4, 7, 1)]) == 7


def test_too_few_answers_give_no_end() -> None:
    with pytest.raises(AssertionError, match="too few answers"):
        AckPolicy(3, 2).recovered_end([Offset(5)])


def test_a_majority_acknowledges_unless_the_topic_asks_for_more() -> None:
    assert policy_for(3, min_insync=1) == AckPolicy(3, 2)
    assert policy_for(3, min_insync=3) == AckPolicy(3, 3)
    assert policy_for(4, min_insync=1) == AckPolicy(4, 3)
    assert policy_for(1, min_insync=1) == AckPolicy(1, 1)


def test_a_topic_may_name_its_own_policy() -> None:
    assert policy_for(2, min_insync=1, acks=1) == AckPolicy(2, 1)
    assert policy_for(2, min_insync=1, acks=3) == AckPolicy(2, 2)


def test_too_few_replicas_are_refused_for_now() -> None:
    with pytest.raises(Unavailable) as refused:
        policy_for(1, min_insync=2)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert refused.value.retriable


@pytest.mark.parametrize(("replicas", "acks"), [(3, 0), (3, 4), (0, 0)])
def test_a_policy_that_cannot_be_met_is_refused(replicas: int, acks: int) -> None:
    with pytest.raises(InvalidRequest):
        AckPolicy(replicas, acks)
