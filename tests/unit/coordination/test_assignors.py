"""Server-side assignment: how partitions are shared and what is left where it is."""

import pytest

from mainstem.coordination.consumer.assignors import (
    ASSIGNORS,
    Assignment,
    Subscriber,
    assign_range,
    assign_uniform,
)
from mainstem.model.ids import TopicId

A, B, C = (TopicId(name * 16) for name in (b"a", b"b", b"c"))


def shares(assignment: dict[str, Assignment]) -> dict[str, dict[str, list[int]]]:
    return {
        member: {chr(topic[0]): sorted(found) for topic, found in sorted(topics.items())}
        for member, topics in assignment.items()
    }


def everybody(topics: set[TopicId], *names: str) -> dict[str, Subscriber]:
    return {name: Subscriber(frozenset(topics)) for name in names}


def again(
    members: dict[str, Subscriber], assignment: dict[str, Assignment]
) -> dict[str, Subscriber]:
    return {
        name: Subscriber(member.topics, assignment.get(name, {}), member.instance_id)
        for name, member in members.items()
    }


def moved(before: dict[str, Assignment], after: dict[str, Assignment]) -> int:
    def places(one: Assignment) -> set[tuple[TopicId, int]]:
        return {(topic, p) for topic, partitions in one.items() for p in partitions}

    return sum(len(places(after[name]) - places(before.get(name, {}))) for name in after)


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_nobody_gets_anything_where_there_is_nobody_or_nothing(name: str) -> None:
    assert ASSIGNORS[name]({}, {A: 3}) == {}
    assert ASSIGNORS[name](everybody(set(), "m"), {}) == {"m": {}}
    assert ASSIGNORS[name](everybody({A}, "m"), {A: 0}) == {"m": {}}


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_more_members_than_partitions_leave_some_without(name: str) -> None:
    found = ASSIGNORS[name](everybody({A}, "m", "n", "o"), {A: 2})
    assert sorted(len(topics.get(A, ())) for topics in found.values()) == [0, 1, 1]


def test_range_gives_the_same_piece_of_every_topic_to_a_member() -> None:
    found = assign_range(everybody({A, B}, "n", "m"), {A: 3, B: 3})
    assert shares(found) == {"n": {"a": [2], "b": [2]}, "m": {"a": [0, 1], "b": [0, 1]}}


def test_range_orders_static_members_by_their_instance() -> None:
    members = {
        "z": Subscriber(frozenset({A}), instance_id="1"),
        "a": Subscriber(frozenset({A}), instance_id="2"),
        "0": Subscriber(frozenset({A})),
    }
    assert shares(assign_range(members, {A: 3})) == {
        "z": {"a": [0]},
        "a": {"a": [1]},
        "0": {"a": [2]},
    }


def test_range_skips_who_does_not_read_a_topic() -> None:
    members = everybody({A, B}, "m") | everybody({B}, "n")
    assert shares(assign_range(members, {A: 2, B: 2})) == {
        "m": {"a": [0, 1], "b": [0]},
        "n": {"b": [1]},
    }


def test_uniform_balances_over_all_topics() -> None:
    found = assign_uniform(everybody({A, B, C}, "m", "n"), {A: 1, B: 1, C: 1})
    assert sorted(sum(map(len, topics.values())) for topics in found.values()) == [1, 2]


def test_uniform_moves_only_what_a_new_member_needs() -> None:
    two = everybody({A}, "m", "n")
    before = assign_uniform(two, {A: 6})
    three = again(two | everybody({A}, "o"), before)
    after = assign_uniform(three, {A: 6})
    assert [len(after[name][A]) for name in "mno"] == [2, 2, 2]
    assert moved(before, after) == 2


def test_uniform_moves_only_what_a_member_left_behind() -> None:
    three = everybody({A}, "m", "n", "o")
    before = assign_uniform(three, {A: 6})
    two = again(everybody({A}, "m", "n"), before)
    after = assign_uniform(two, {A: 6})
    assert after["m"][A] > before["m"][A]
    assert after["n"][A] > before["n"][A]
    assert moved(before, after) == 2


def test_uniform_keeps_larger_shares_where_they_are() -> None:
    members = {
        "m": Subscriber(frozenset({A}), {A: frozenset({0})}),
        "n": Subscriber(frozenset({A}), {A: frozenset({1, 2})}),
    }
    assert shares(assign_uniform(members, {A: 3})) == {"m": {"a": [0]}, "n": {"a": [1, 2]}}


def test_uniform_takes_back_what_no_longer_exists_or_is_not_read() -> None:
    members = {"m": Subscriber(frozenset({A}), {A: frozenset({0, 7}), B: frozenset({0})})}
    assert shares(assign_uniform(members, {A: 1})) == {"m": {"a": [0]}}


def test_uniform_lets_one_of_two_keep_what_both_had() -> None:
    both = {A: frozenset({0})}
    members = {name: Subscriber(frozenset({A}), both) for name in "mn"}
    assert shares(assign_uniform(members, {A: 1})) == {"m": {"a": [0]}, "n": {}}


def test_uniform_balances_members_that_read_different_topics() -> None:
    members = everybody({A}, "m") | everybody({A, B}, "n")
    found = assign_uniform(members, {A: 4, B: 2})
    assert [sum(map(len, found[name].values())) for name in "mn"] == [3, 3]
    assert found["n"][B] == {0, 1}


def test_uniform_moves_partitions_to_a_member_that_has_less() -> None:
    everything = {A: frozenset(range(4))}
    members = {
        "m": Subscriber(frozenset({A, B}), everything),
        "n": Subscriber(frozenset({A})),
    }
    found = assign_uniform(members, {A: 4, B: 2})
    assert [sum(map(len, found[name].values())) for name in "mn"] == [3, 3]
    assert found["m"][B] == {0, 1}
    assert found["m"][A] < everything[A]
