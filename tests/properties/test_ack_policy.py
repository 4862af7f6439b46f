"""A committed record is found by every fence that is large enough, for every policy."""

from hypothesis import given
from hypothesis import strategies as st

from mainstem.model.ids import Offset
from mainstem.streams.ack_policy import AckPolicy, policy_for

POLICIES = st.integers(1, 7).flatmap(
    lambda replicas: st.builds(AckPolicy, st.just(replicas), st.integers(1, replicas))
)


@given(data=st.data(), policy=POLICIES)
def test_any_fence_covers_what_is_committed(data: st.DataObject, policy: AckPolicy) -> None:
    ends = data.draw(
        st.lists(st.integers(0, 9), min_size=policy.replicas, max_size=policy.replicas)
    )
    places = st.sets(st.integers(0, policy.replicas - 1), min_size=policy.fence_answers_min)
    answered = [Offset(ends[place]) for place in data.draw(places)]
    assert policy.recovered_end(answered) >= policy.committed(Offset(end) for end in ends)
    assert policy.recovered_end(answered) in answered


@given(data=st.data(), policy=POLICIES)
def test_all_answers_give_exactly_what_is_committed(data: st.DataObject, policy: AckPolicy) -> None:
    drawn = data.draw(
        st.lists(st.integers(0, 9), min_size=policy.replicas, max_size=policy.replicas)
    )
    ends = [Offset(end) for end in drawn]
    assert policy.recovered_end(ends) == policy.committed(ends)
    assert sum(end >= policy.committed(ends) for end in ends) >= policy.acks


@given(replicas=st.integers(1, 9), min_insync=st.integers(1, 9))
def test_a_majority_or_more_acknowledges(replicas: int, min_insync: int) -> None:
    if min_insync > replicas:
        return
    policy = policy_for(replicas, min_insync=min_insync)
    assert policy.acks >= min_insync
    assert 2 * policy.acks > replicas
    assert policy.fence_answers_min <= policy.acks
