"""Which records may go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.log.cleaning.retention import (
    UNLIMITED,
    RetentionPiece,
    RetentionSettings,
    retention_start,
)

DAY = 86_400_000
PIECES = [RetentionPiece(place * 10, place * 10 + 10, 100, place * DAY) for place in range(5)]


@pytest.mark.parametrize(
    ("settings", "now", "start"),
    [
        (RetentionSettings(), 100 * DAY, None),
        (RetentionSettings(retention_ms=DAY), 0, None),
        (RetentionSettings(retention_ms=DAY), 2 * DAY, 10),
        (RetentionSettings(retention_ms=DAY), 2 * DAY + 1, 20),
        (RetentionSettings(retention_ms=DAY), 100 * DAY, 40),
        (RetentionSettings(retention_bytes=500), 0, None),
        (RetentionSettings(retention_bytes=401), 0, None),
        (RetentionSettings(retention_bytes=400), 0, 10),
        (RetentionSettings(retention_bytes=0), 0, 40),
        (RetentionSettings(retention_ms=DAY, retention_bytes=200), 2 * DAY, 30),
    ],
)
def test_age_and_size(settings: RetentionSettings, now: int, start: int | None) -> None:
    assert retention_start(PIECES, settings, now_ms=now, floor=1_000) == start


def test_nothing_at_or_above_the_floor_goes() -> None:
    everything = RetentionSettings(retention_ms=0)
    assert retention_start(PIECES, everything, now_ms=100 * DAY, floor=25) == 20
    assert retention_start(PIECES, everything, now_ms=100 * DAY, floor=0) is None


def test_the_last_piece_goes_only_when_the_caller_can_begin_another() -> None:
    everything = RetentionSettings(retention_ms=0)
    last = retention_start(PIECES, everything, now_ms=100 * DAY, floor=50, spare_last=False)
    assert last == 50


def test_records_without_a_time_do_not_age() -> None:
    pieces = [RetentionPiece(0, 10, 100, -1), RetentionPiece(10, 20, 100, 0)]
    assert retention_start(pieces, RetentionSettings(1), now_ms=DAY, floor=99) is None


@given(
    sizes=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 50), st.integers(-1, 100))),
    retention_ms=st.integers(UNLIMITED, 120),
    retention_bytes=st.integers(UNLIMITED, 300),
    now=st.integers(0, 200),
    floor=st.integers(0, 100),
)
def test_what_stays_is_a_suffix_that_holds_everything_wanted(
    sizes: list[tuple[int, int, int]], retention_ms: int, retention_bytes: int, now: int, floor: int
) -> None:
    pieces = []
    offset = 0
    for count, size, timestamp in sizes:
        pieces.append(RetentionPiece(offset, offset + count, size, timestamp))
        offset += count
    settings = RetentionSettings(retention_ms, retention_bytes)
    start = retention_start(pieces, settings, now_ms=now, floor=floor) or 0
    gone = [piece for piece in pieces if piece.until <= start]
    kept = [piece for piece in pieces if piece.until > start]
    assert start <= floor
    assert kept or not pieces
    if gone and retention_bytes != UNLIMITED and retention_ms == UNLIMITED:
        assert sum(piece.size_bytes for piece in kept) >= retention_bytes
    if retention_ms != UNLIMITED and retention_bytes == UNLIMITED:
        assert all(now - piece.max_timestamp > retention_ms for piece in gone)
