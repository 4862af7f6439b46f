"""Spans of time and amounts as people write them."""

import pytest

from mainstem.cli.errors import UsageFailure
from mainstem.cli.parameters.duration import parse_amount, parse_duration_ms


@pytest.mark.parametrize(
    ("text", "span_ms"),
    [("250ms", 250), ("90s", 90_000), ("1.5m", 90_000), ("12h", 43_200_000), ("30d", 2_592_000_000),
     ("2w", 1_209_600_000)],
)  # fmt: skip
def test_a_span_of_time_has_a_unit(text: str, span_ms: int) -> None:
    assert parse_duration_ms(text) == span_ms


@pytest.mark.parametrize(
    ("text", "amount"),
    [("500", 500), ("0.5", 0.5), ("10MB", 1e7), ("10 mb", 1e7), ("1Mi", 2**20), ("2KiB", 2_048),
     ("3g", 3e9), ("1e9", 1e9)],
)  # fmt: skip
def test_an_amount_may_have_a_factor(text: str, amount: float) -> None:
    assert parse_amount(text) == amount


@pytest.mark.parametrize("text", ["", "5", "-5s", "0s", "5 years", "s"])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(UsageFailure, match="not a duration"):
        parse_duration_ms(text)


@pytest.mark.parametrize("text", ["", "fast", "-1", "0", "1e999", "10XB"])
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(UsageFailure, match="not a number"):
        parse_amount(text)
