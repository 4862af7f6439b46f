import pytest
from tests.unit.queues.building import STREAM, named

from mainstem.model.errors import Corrupt
from mainstem.queues.facts import (
    Acquired,
    Condemned,
    LaneClosed,
    LaneOpened,
    Pointer,
    PointersAdded,
    PointersMoved,
    QueueChanged,
    QueueDeclared,
    QueueDeleted,
    QueueFact,
    QueuesCounted,
    RemovalReason,
    Returned,
    Settled,
    SnapshotPart,
    SourcesPassed,
    pieces_of,
    spans_of,
)
from mainstem.queues.settings import DeliveryMode, Overflow, QueueSettings
from mainstem.queues.storage.fact_codec import QUEUE_CODEC

SETTINGS = QueueSettings(
    mode=DeliveryMode.PRIORITY, overflow=Overflow.BLOCK, max_length=5, retry_factor=1.5
)


@pytest.mark.parametrize(
    "fact",
    [
        QueueDeclared(3, named("q"), SETTINGS),
        QueueChanged(3, SETTINGS),
        QueueDeleted(2**40),
        SourcesPassed(1, ((STREAM, 2**40), (STREAM, 0))),
        PointersAdded(1, 7, STREAM, (Pointer(2**40, 10, 3, 4, 5), Pointer(2**40 + 1, 10))),
        PointersMoved(1, STREAM, ((0, 2**40), (3, 2**41))),
        Acquired(1, 0, ((0, 4), (9, 10))),
        Returned(1, 2, ((0, 1),), is_failure=True, visible_ms=99),
        Condemned(1, -1, ((0, 1),), RemovalReason.HANDLER_ERROR, 5),
        Settled(1, 0, ((0, 1),)),
        Settled(1, 0, ((0, 1),), RemovalReason.OVERFLOW),
        LaneOpened(1, 4, "über", is_named=True),
        LaneClosed(1, 4),
        SnapshotPart(1, 0, is_last=False, body={"a": [1, b"x", None]}),
        QueuesCounted(12),
    ],
)
def test_every_fact_survives_the_round_trip(fact: QueueFact) -> None:
    assert QUEUE_CODEC.decode(*QUEUE_CODEC.encode(fact)) == fact


def test_a_version_that_is_not_known_is_skipped() -> None:
    key, value = QUEUE_CODEC.encode(QueueDeleted(1))

    assert QUEUE_CODEC.decode(b"\x09" + key[1:], value) is None
    assert QUEUE_CODEC.decode(None, value) is None


@pytest.mark.parametrize("value", [b"", b"\xc1", b"\x93\xa7unknown\x01\x02", b"\x91", None])
def test_bytes_that_are_no_fact_are_corrupt(value: bytes | None) -> None:
    key, _ = QUEUE_CODEC.encode(QueueDeleted(1))

    with pytest.raises(Corrupt):
        QUEUE_CODEC.decode(key, value)


def test_a_hundred_pointers_take_little_room() -> None:
    fact = PointersAdded(1, 0, STREAM, tuple(Pointer(10**6 + number, 100) for number in range(100)))
    _, value = QUEUE_CODEC.encode(fact)

    assert value is not None
    assert len(value) < 100 * 16


@pytest.mark.parametrize(
    ("sequences", "spans"),
    [
        ([], ()),
        ([5], ((5, 6),)),
        ([3, 1, 2], ((1, 4),)),
        ([1, 3, 4, 9], ((1, 2), (3, 5), (9, 10))),
    ],
)
def test_sequences_become_spans(sequences: list[int], spans: tuple[tuple[int, int], ...]) -> None:
    assert spans_of(sequences) == spans


def test_a_fact_about_very_many_places_becomes_several() -> None:
    spans = tuple((start, start + 1) for start in range(0, 50_002, 2))
    fact = Settled(1, 0, spans, RemovalReason.PURGED)

    pieces = list(pieces_of(fact))

    assert len(pieces) == 3
    assert [span for piece in pieces for span in getattr(piece, "spans", ())] == list(spans)
    assert list(pieces_of(QueueDeleted(1))) == [QueueDeleted(1)]
