"""How members share partitions."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.client.consuming.assignors import (
    ASSIGNORS,
    Assignment,
    SubscribedMember,
    assign_range,
    assign_round_robin,
)
from mainstem.client.values import TopicPartition


def member(name: str, *topics: str, instance_id: str | None = None) -> SubscribedMember:
    return SubscribedMember(name, instance_id, frozenset(topics))


def brief(assignment: Assignment) -> dict[str, list[str]]:
    return {name: [str(p) for p in partitions] for name, partitions in assignment.items()}


def test_range_gives_neighbours_and_the_rest_to_the_first() -> None:
    members = [member("b", "t", "u"), member("a", "t", "u")]
    assert brief(assign_range(members, {"t": 3, "u": 3})) == {
        "a": ["t-0", "t-1", "u-0", "u-1"],
        "b": ["t-2", "u-2"],
    }


def test_round_robin_deals_all_topics_in_one_go() -> None:
    members = [member("a", "t", "u"), member("b", "t", "u")]
    assert brief(assign_round_robin(members, {"t": 3, "u": 3})) == {
        "a": ["t-0", "t-2", "u-1"],
        "b": ["t-1", "u-0", "u-2"],
    }


def test_round_robin_skips_who_did_not_subscribe() -> None:
    members = [member("a", "t"), member("b", "t", "u"), member("c", "u")]
    assert brief(assign_round_robin(members, {"t": 2, "u": 2})) == {
        "a": ["t-0"],
        "b": ["t-1", "u-1"],
        "c": ["u-0"],
    }


def test_static_members_are_ordered_by_their_instance() -> None:
    members = [member("a", "t", instance_id="z"), member("b", "t", instance_id="y")]
    assert brief(assign_range(members, {"t": 1})) == {"a": [], "b": ["t-0"]}


subscriptions = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3), st.frozensets(st.sampled_from("tuvw")), min_size=1
)
counts = st.dictionaries(st.sampled_from("tuvwx"), st.integers(0, 12))


@pytest.mark.parametrize("name", ASSIGNORS)
@given(subscriptions=subscriptions, partition_counts=counts)
def test_every_partition_goes_to_one_who_subscribed(
    name: str, subscriptions: Mapping[str, frozenset[str]], partition_counts: Mapping[str, int]
) -> None:
    members = [SubscribedMember(who, None, topics) for who, topics in subscriptions.items()]
    assignment = ASSIGNORS[name](members, partition_counts)
    wanted = frozenset().union(*subscriptions.values())
    given_out = [p for partitions in assignment.values() for p in partitions]
    assert sorted(given_out) == sorted(
        TopicPartition(topic, index)
        for topic, count in partition_counts.items()
        if topic in wanted
        for index in range(count)
    )
    for who, partitions in assignment.items():
        assert {p.topic for p in partitions} <= subscriptions[who]
    assert assignment == ASSIGNORS[name](list(reversed(members)), partition_counts)


@given(st.integers(1, 9), st.integers(0, 40))
def test_shares_differ_by_one_at_most(member_count: int, partitions: int) -> None:
    members = [member(str(number), "t") for number in range(member_count)]
    for assign in ASSIGNORS.values():
        sizes = [len(share) for share in assign(members, {"t": partitions}).values()]
        assert max(sizes) - min(sizes) <= 1
