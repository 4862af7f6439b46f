"""Bytes of consumer groups: those of Kafka's own internal topic."""

import pytest

from mainstem.coordination.classic.consumer_protocol import (
    EmbeddedAssignment,
    EmbeddedSubscription,
    assignment_bytes,
    read_assignment,
    read_subscription,
)
from mainstem.coordination.consumer.facts import (
    ClassicMemberData,
    ConsumerFact,
    ConsumerRecordKind,
    EpochMoved,
    FactRemoved,
    MemberMoved,
    MemberState,
    MemberSubscribed,
    PatternResolved,
    TargetMoved,
    TargetSet,
)
from mainstem.coordination.consumer.group import ConsumerGroup
from mainstem.coordination.groups.facts import decode, encode
from mainstem.model.errors import Corrupt
from mainstem.model.ids import TopicId

A, B = TopicId(b"a" * 16), TopicId(b"b" * 16)
MEMBER = MemberSubscribed("g", "m", None, None, "c", "/h", ("t",), None, 300, "range")
FACTS: list[ConsumerFact] = [
    EpochMoved("g", 7),
    EpochMoved("g", 7, -5),
    MEMBER,
    MemberSubscribed(
        "g",
        "m",
        "i",
        "r",
        "c",
        "/h",
        (),
        "t.*",
        -1,
        None,
        ClassicMemberData(45, (("range", b"\x01"),)),
    ),
    TargetMoved("g", 7),
    TargetSet("g", "m", {A: frozenset({0, 2}), B: frozenset({1})}),
    TargetSet("g", "m", {}),
    MemberMoved("g", "m", 6, 5, MemberState.UNREVOKED, {A: frozenset({0})}, {B: frozenset({1})}),
    MemberMoved("g", "m", -2, 5, MemberState.STABLE, {}),
    PatternResolved("g", "t.*", ("t1", "t2"), 3, 1_700_000_000_000),
    *(
        FactRemoved(
            kind,
            "g",
            "" if kind in (ConsumerRecordKind.EPOCH, ConsumerRecordKind.TARGET_EPOCH) else "m",
        )
        for kind in ConsumerRecordKind
    ),
]


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: type(fact).__name__)
def test_a_fact_survives_its_bytes(fact: ConsumerFact) -> None:
    assert decode(*encode(fact)) == fact


@pytest.mark.parametrize(
    ("fact", "key", "value"),
    [
        (EpochMoved("g", 7), "0003 000167", "0000 00000007 00"),
        # One tagged field: number 0, eight bytes.
        (EpochMoved("g", 7, 1), "0003 000167", "0000 00000007 01 00 08 0000000000000001"),
        (
            MEMBER,
            "0005 000167 00016d",
            "0000 00 00 0263 032f68 02 0274 00 0000012c 0672616e6765 00",
        ),
        (TargetMoved("g", 7), "0006 000167", "0000 00000007 00"),
        (
            TargetSet("g", "m", {A: frozenset({1})}),
            "0007 000167 00016d",
            "0000 02 " + "61" * 16 + "02 00000001 00 00",
        ),
        (
            MemberMoved("g", "m", 2, 1, MemberState.UNRELEASED, {}),
            "0008 000167 00016d",
            "0000 00000002 00000001 02 01 01 00",
        ),
        (
            PatternResolved("g", "x", ("t",), 1, 2),
            "0010 000167 000178",
            "0000 02 0274 0000000000000001 0000000000000002 00",
        ),
        (FactRemoved(ConsumerRecordKind.CURRENT, "g", "m"), "0008 000167 00016d", None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_bytes_are_those_of_kafka(fact: ConsumerFact, key: str, value: str | None) -> None:
    expected = None if value is None else bytes.fromhex(value)
    assert encode(fact) == (bytes.fromhex(key), expected)


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: type(fact).__name__)
def test_bytes_cut_anywhere_are_corrupt_and_never_a_crash(fact: ConsumerFact) -> None:
    key, value = encode(fact)
    for cut in range(len(key)):
        with pytest.raises(Corrupt):
            decode(key[:cut], value)
    for cut in range(len(value or b"") - 1):
        with pytest.raises(Corrupt):
            decode(key, (value or b"")[:cut])


def test_what_is_not_known_is_skipped() -> None:
    key, value = encode(EpochMoved("g", 7))
    assert value is not None
    assert decode(key, b"\x00\x01" + value[2:]) is None
    assert decode(b"\x00\x04\x00\x01g", b"\x00\x00\x01\x00") is None  # topics, before Kafka 4.1
    moved, state = encode(MemberMoved("g", "m", 1, 1, MemberState.STABLE, {}))
    assert state is not None
    assert decode(moved, state[:10] + b"\x7f" + state[11:]) is None  # a state of later times


def test_a_compacted_log_may_show_the_next_owner_first() -> None:
    group = ConsumerGroup("g")
    group.replay(MemberMoved("g", "a", 1, 0, MemberState.STABLE, {A: frozenset({0, 1})}))
    group.replay(MemberMoved("g", "b", 2, 0, MemberState.STABLE, {A: frozenset({1})}))
    assert group.owner(A, 1) == "b"
    group.replay(MemberMoved("g", "a", 2, 1, MemberState.STABLE, {A: frozenset({0})}))
    assert (group.owner(A, 0), group.owner(A, 1)) == ("a", "b")
    group.replay(FactRemoved(ConsumerRecordKind.CURRENT, "g", "b"))
    assert group.owner(A, 1) is None
    assert group.members["b"].epoch == -1


def test_what_classic_consumers_write_is_read_in_every_version() -> None:
    topics = "00000001" + "000174" + "ffffffff"
    owned = "00000001" + "000174" + "00000002" + "00000000" + "00000001"
    expected = {"t": frozenset({0, 1})}
    for version, rest, said in (
        (0, "", EmbeddedSubscription(0, ("t",), {})),
        (1, owned, EmbeddedSubscription(1, ("t",), expected)),
        (2, owned + "00000007", EmbeddedSubscription(2, ("t",), expected)),
        (3, owned + "00000007" + "000172", EmbeddedSubscription(3, ("t",), expected, "r")),
        (9, owned + "00000007" + "ffff" + "beef", EmbeddedSubscription(3, ("t",), expected)),
    ):
        data = bytes.fromhex(f"{version:04x}" + topics + rest)
        assert read_subscription(data) == said


def test_assignments_of_classic_consumers_survive_their_bytes() -> None:
    given = {"t": frozenset({0, 2}), "u": frozenset[int]()}
    assert read_assignment(assignment_bytes(given, 1)) == EmbeddedAssignment(given)
    assert read_assignment(b"") == EmbeddedAssignment({})
    with_data = bytes.fromhex("0001" + "00000000" + "00000002" + "beef")
    assert read_assignment(with_data).user_data == b"\xbe\xef"


@pytest.mark.parametrize(
    "data", [b"\x00", b"\x00\x01\x00\x00\x00\x05", b"\x00\x01\x00\x00\x00\x01\x00\x01\xff"]
)
def test_metadata_of_another_shape_is_refused(data: bytes) -> None:
    with pytest.raises(Corrupt):
        read_subscription(data)
    with pytest.raises(Corrupt):
        read_assignment(data)
