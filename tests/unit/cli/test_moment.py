"""Points in time as people write them."""

import pytest

from mainstem.cli.errors import UsageFailure
from mainstem.cli.parameters.timestamp import format_timestamp, parse_timestamp

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1234", 1234),
        ("-2h", NOW_MS - 7_200_000),
        ("-1.5s", NOW_MS - 1_500),
        ("2026-01-31T12:00:00Z", 1_769_860_800_000),
        ("2026-01-31T12:00:00.250+01:00", 1_769_857_200_250),
    ],
)
def test_dates_numbers_and_distances_are_understood(text: str, expected: int) -> None:
    assert parse_timestamp(text, NOW_MS) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "-2", "2h", "-h", "٣"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageFailure, match="not a point in time"):
        parse_timestamp(text, NOW_MS)


def test_a_moment_is_shown_in_universal_time() -> None:
    assert format_timestamp(1_769_860_800_000) == "2026-01-31T12:00:00.000+00:00"
    assert format_timestamp(-1) == "-"
