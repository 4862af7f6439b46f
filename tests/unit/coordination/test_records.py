"""Facts in the bytes that Kafka itself would write to `__consumer_offsets`."""

import pytest

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
from mainstem.coordination.offsets.pending import GROUP_CODEC, TransactionEnded
from mainstem.coordination.shards.fact_log import batches, facts_in
from mainstem.coordination.shards.partitioning import partition_for
from mainstem.coordination.transactions.state import ProducerIdentity
from mainstem.model.errors import Corrupt
from mainstem.model.records.batch import stamp
from mainstem.streams.producers.transaction_markers import TransactionMarker, marker_batch

GENERATION = GroupSaved(
    "g",
    protocol_type="consumer",
    generation=7,
    protocol_name="range",
    leader="m",
    state_ms=1_700_000_000_000,
    members=(SavedMember("m", "i", "c", "/h", 300, 45, b"sub", b"asg"),),
)
FACTS: list[Fact] = [
    OffsetCommitted("g", "t", 3, CommittedOffset(42, 5, "note", 1_700_000_000_000)),
    OffsetCommitted("g", "t", 3, CommittedOffset(42, -1, "", 10, expire_ms=99)),
    OffsetRemoved("g", "t", 3),
    GENERATION,
    GroupSaved("g", "", 0, None, None, -1, ()),
    GroupRemoved("g"),
]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: type(fact).__name__)
def test_every_fact_survives_the_round_trip(fact: Fact) -> None:
    assert decode(*encode(fact)) == fact


def test_a_committed_offset_is_written_as_kafka_writes_it() -> None:
    key, value = encode(FACTS[0])
    assert key.hex() == "0001" + "000167" + "000174" + "00000003"
    assert value is not None
    assert value.hex() == (
        "0003" + "000000000000002a" + "00000005" + "00046e6f7465" + "0000018bcfe56800"
    )


def test_an_offset_with_its_own_expiry_is_written_in_the_version_that_has_one() -> None:
    _, value = encode(FACTS[1])
    assert value is not None
    assert value.hex() == (
        "0001" + "000000000000002a" + "0000" + "000000000000000a" + "0000000000000063"
    )


def test_a_generation_is_written_as_kafka_writes_it() -> None:
    key, value = encode(GENERATION)
    assert key.hex() == "0002" + "000167"
    assert value is not None
    assert value.hex() == (
        "0003" + "0008636f6e73756d6572" + "00000007" + "000572616e6765" + "00016d"
        "0000018bcfe56800" + "00000001"
        "00016d" + "000169" + "000163" + "00022f68" + "0000012c" + "0000002d"
        "00000003737562" + "00000003617367"
    )  # fmt: skip


def test_flexible_values_of_newer_nodes_are_read() -> None:
    key, _ = encode(GENERATION)
    value = bytes.fromhex(
        "0004" + "09636f6e73756d6572" + "00000007" + "0672616e6765" + "026d"
        "0000018bcfe56800" + "02"
        "026d" + "0269" + "0263" + "032f68" + "0000012c" + "0000002d"
        "04737562" + "04617367" + "01" + "05" + "02" + "ffff" + "00"
    )  # fmt: skip
    assert decode(key, value) == GENERATION


def test_a_flexible_offset_with_a_tagged_topic_id_is_read() -> None:
    key, _ = encode(FACTS[0])
    value = bytes.fromhex(
        "0004" + "000000000000002a" + "00000005" + "056e6f7465" + "0000018bcfe56800"
        "01" + "00" + "10" + "11" * 16
    )  # fmt: skip
    assert decode(key, value) == FACTS[0]


def test_members_of_the_oldest_version_have_one_timeout_for_both() -> None:
    value = bytes.fromhex(
        "0000" + "0008636f6e73756d6572" + "00000001" + "000572616e6765" + "00016d" + "00000001"
        "00016d" + "000163" + "00022f68" + "0000002d" + "00000000" + "00000000"
    )  # fmt: skip
    fact = decode(bytes.fromhex("0002000167"), value)
    assert isinstance(fact, GroupSaved)
    assert fact.members == (SavedMember("m", None, "c", "/h", 45, 45, b"", b""),)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"x"),
        (b"\x00\x09\x00\x01g", b"\x00\x00"),  # a record of a share group
        (b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00", b"\x00\x09???"),
        (b"\x00\x02\x00\x01g", b"\x00\x63???"),
    ],
)
def test_what_is_not_known_is_skipped(key: bytes | None, value: bytes | None) -> None:
    assert decode(key, value) is None


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: type(fact).__name__)
def test_bytes_cut_anywhere_are_corrupt_and_never_a_crash(fact: Fact) -> None:
    key, value = encode(fact)
    for cut in range(len(key)):
        with pytest.raises(Corrupt):
            decode(key[:cut], value)
    for cut in range(len(value or b"")):
        with pytest.raises(Corrupt):
            decode(key, (value or b"")[:cut])


@pytest.mark.parametrize(
    ("group_id", "partition"),
    # String.hashCode: 0, 97, 99162322, and the one that has no positive twin.
    [("", 0), ("a", 47), ("hello", 22), ("polygenelubricants", 0), ("\U0001f600", 49)],
)
def test_groups_fall_on_the_partition_that_java_computes(group_id: str, partition: int) -> None:
    assert partition_for(group_id, 50) == partition


def test_the_topics_of_a_subscription_are_read_from_any_version() -> None:
    assert subscribed_topics(bytes.fromhex("0000" + "00000002" + "000161" + "000162")) == frozenset(
        "ab"
    )
    newer = bytes.fromhex("0003" + "00000001" + "000161" + "ffffffff" + "00000000" + "0000000a")
    assert subscribed_topics(newer) == frozenset("a")


@pytest.mark.parametrize(
    "metadata", [b"", b"\0\0", b"\0\0\x7f\xff\xff\xff\0\x01a", b"\0\0\0\0\0\1\0\5a"]
)
def test_a_subscription_that_cannot_be_read_says_nothing(metadata: bytes) -> None:
    assert subscribed_topics(metadata) is None


def test_markers_of_transactions_are_facts_when_a_stream_is_read() -> None:
    [(_, batch)] = batches([GENERATION], 5, GROUP_CODEC)
    marker = marker_batch(7, 2, TransactionMarker(commit=True, coordinator_epoch=0), 5)
    stamp(marker, 0, 1, 0)

    found = list(facts_in(bytes(batch + marker), GROUP_CODEC))

    ended = TransactionEnded(ProducerIdentity(7, 2), commit=True)
    assert found == [(1, [GENERATION]), (2, [ended])]
