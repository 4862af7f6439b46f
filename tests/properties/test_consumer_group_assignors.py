"""Whatever members read and had: every partition has one owner, loads are even, little moves."""

from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.coordination.consumer.assignors import (
    ASSIGNORS,
    Assignment,
    Subscriber,
    assign_uniform,
)
from mainstem.model.ids import TopicId

TOPICS = [TopicId(bytes([65 + n]) * 16) for n in range(5)]
MEMBERS = [f"m{n}" for n in range(7)]
Counts = dict[TopicId, int]
COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9), max_size=5)


@st.composite
def assigned(draw: st.DrawFn) -> Assignment:
    """What a member may have had, also what is long gone."""
    found = draw(
        st.dictionaries(st.sampled_from(TOPICS), st.frozensets(st.integers(0, 10)), max_size=4)
    )
    return {topic: partitions for topic, partitions in found.items() if partitions}


SUBSCRIBERS = st.dictionaries(
    st.sampled_from(MEMBERS),
    st.builds(
        Subscriber,
        st.frozensets(st.sampled_from(TOPICS)),
        assigned(),
        st.none() | st.sampled_from("xyz"),
    ),
    max_size=7,
)


def places(assignment: Assignment) -> set[tuple[TopicId, int]]:
    return {(topic, p) for topic, partitions in assignment.items() for p in partitions}


def load(assignment: Assignment) -> int:
    return sum(map(len, assignment.values()))


@given(name=st.sampled_from(sorted(ASSIGNORS)), members=SUBSCRIBERS, counts=COUNTS)
def test_every_partition_goes_to_exactly_one_subscriber(
    name: str, members: dict[str, Subscriber], counts: Counts
) -> None:
    found = ASSIGNORS[name](members, counts)
    assert found.keys() == members.keys()
    owned = [place for each in found.values() for place in places(each)]
    read = {topic for member in members.values() for topic in member.topics}
    assert len(owned) == len(set(owned))
    assert set(owned) == {(t, p) for t, n in counts.items() if t in read for p in range(n)}
    for member_id, topics in found.items():
        assert set(topics) <= members[member_id].topics
        assert all(topics.values())


@given(
    topics=st.frozensets(st.sampled_from(TOPICS)),
    had=st.dictionaries(st.sampled_from(MEMBERS), assigned(), min_size=1, max_size=7),
    counts=COUNTS,
)
def test_equal_members_are_at_most_one_apart_and_keep_all_that_allows(
    topics: frozenset[TopicId], had: dict[str, Assignment], counts: Counts
) -> None:
    members = {name: Subscriber(topics, before) for name, before in had.items()}
    found = assign_uniform(members, counts)
    loads = [load(each) for each in found.values()]
    assert max(loads) - min(loads) <= 1
    # What each may keep is what it had, is still there, and nobody before it had as well.
    seen: set[tuple[TopicId, int]] = set()
    valid = {}
    for name, before in had.items():
        there = {(t, p) for t, p in places(before) if t in topics and p < counts.get(t, 0)}
        valid[name] = there - seen
        seen |= there
    quota, larger = divmod(sum(counts.get(topic, 0) for topic in topics), len(had))
    sizes = sorted((len(each) for each in valid.values()), reverse=True)
    # No assignment with loads one apart lets more stay: the largest get the larger shares.
    most = sum(min(size, quota + (place < larger)) for place, size in enumerate(sizes))
    kept = sum(len(places(found[name]) & valid[name]) for name in had)
    assert kept == most


@given(members=SUBSCRIBERS, counts=COUNTS)
def test_no_single_move_would_make_unequal_members_more_even(
    members: dict[str, Subscriber], counts: Counts
) -> None:
    found = assign_uniform(members, counts)
    for topics in found.values():
        for topic in topics:
            for taker, member in members.items():
                if topic in member.topics:
                    assert load(topics) - load(found[taker]) <= 1


@given(name=st.sampled_from(sorted(ASSIGNORS)), members=SUBSCRIBERS, counts=COUNTS)
@settings(max_examples=50)
def test_what_is_settled_stays_as_it_is(
    name: str, members: dict[str, Subscriber], counts: Counts
) -> None:
    first = ASSIGNORS[name](members, counts)
    settled = {
        member_id: Subscriber(member.topics, first[member_id], member.instance_id)
        for member_id, member in members.items()
    }
    assert ASSIGNORS[name](settled, counts) == first
