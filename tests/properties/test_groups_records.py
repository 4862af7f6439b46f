"""Facts of groups: every fact survives its bytes, and no bytes crash the reader."""

import contextlib
from typing import cast

from hypothesis import example, given
from hypothesis import strategies as st

from mainstem.coordination.classic.subscription import subscribed_topics
from mainstem.coordination.groups.facts import (
    Fact,
    GroupRemoved,
    GroupSaved,
    OffsetCommitted,
    OffsetRemoved,
    SavedMember,
    decode,
    encode,
)
from mainstem.coordination.groups.requests import CommittedOffset
from mainstem.coordination.offsets.pending import GROUP_CODEC
from mainstem.coordination.shards.fact_log import batches, facts_in
from mainstem.model.errors import Corrupt

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TIMEOUTS = st.integers(0, 2**31 - 1)

MEMBERS = st.builds(
    SavedMember,
    member_id=TEXTS,
    instance_id=st.none() | TEXTS,
    client_id=TEXTS,
    client_host=TEXTS,
    rebalance_timeout_ms=TIMEOUTS,
    session_timeout_ms=TIMEOUTS,
    subscription=st.binary(max_size=40),
    assignment=st.binary(max_size=40),
)
OFFSETS = st.builds(
    CommittedOffset, offset=INT64, leader_epoch=INT32, metadata=TEXTS, commit_ms=INT64
) | st.builds(
    CommittedOffset,
    offset=INT64,
    metadata=TEXTS,
    commit_ms=INT64,
    expire_ms=st.integers(0, 2**63 - 1),
)
FACTS = cast(
    "st.SearchStrategy[Fact]",
    st.one_of(
        st.builds(OffsetCommitted, TEXTS, TEXTS, INT32, OFFSETS),
        st.builds(OffsetRemoved, TEXTS, TEXTS, INT32),
        st.builds(GroupRemoved, TEXTS),
        st.builds(
            GroupSaved,
            group_id=TEXTS,
            protocol_type=TEXTS,
            generation=INT32,
            protocol_name=st.none() | TEXTS,
            leader=st.none() | TEXTS,
            state_ms=INT64,
            members=st.lists(MEMBERS, max_size=4).map(tuple),
        ),
    ),
)
VERSIONED = st.tuples(st.integers(0, 6), st.binary(max_size=60)).map(
    lambda pair: pair[0].to_bytes(2, "big") + pair[1]
)


@given(FACTS)
def test_a_fact_survives_its_bytes(fact: Fact) -> None:
    assert decode(*encode(fact)) == fact


@given(st.lists(FACTS, min_size=1, max_size=8), st.integers(0, 2**40))
def test_facts_survive_a_batch_in_their_order(facts: list[Fact], wall_ms: int) -> None:
    stored = b"".join(bytes(batch) for _, batch in batches(facts, wall_ms, GROUP_CODEC))
    assert [fact for _, found in facts_in(stored, GROUP_CODEC) for fact in found] == facts


@given(st.none() | VERSIONED, st.none() | VERSIONED)
@example(b"\0\2\0\1g", b"\0\4" + b"\xff" * 60)
def test_no_bytes_crash_the_reader(key: bytes | None, value: bytes | None) -> None:
    with contextlib.suppress(Corrupt):
        decode(key, value)


@given(st.binary(max_size=60))
def test_no_subscription_crashes_the_reader(metadata: bytes) -> None:
    topics = subscribed_topics(metadata)
    assert topics is None or all(isinstance(name, str) for name in topics)
