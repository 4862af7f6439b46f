"""The histogram against sorted lists."""

from hypothesis import given
from hypothesis import strategies as st

from mainstem.cli.output.histogram import Histogram


def filled(values: list[int]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    return histogram


def test_an_empty_histogram_answers_zero() -> None:
    assert Histogram().percentiles([50, 99.9]) == {"p50": 0, "p99.9": 0}
    assert Histogram().mean() == 0


def test_small_values_are_exact() -> None:
    histogram = filled(list(range(1, 101)))
    assert histogram.percentiles([1, 50, 99, 100]) == {"p1": 1, "p50": 50, "p99": 99, "p100": 100}


def test_values_beyond_the_last_bucket_are_counted_there() -> None:
    histogram = filled([1 << 80, -5])
    assert (histogram.count, histogram.largest, histogram.smallest) == (2, 1 << 80, 0)
    assert histogram.percentile(100) == (1 << 80)


@given(
    st.lists(st.integers(0, 1 << 44), min_size=1, max_size=200),
    st.floats(0.01, 100, allow_nan=False),
)
def test_a_percentile_is_near_the_exact_one(values: list[int], percent: float) -> None:
    rank = max(1, -(-len(values) * percent // 100))
    exact = sorted(values)[int(rank) - 1]
    found = filled(values).percentile(percent)
    assert exact <= found <= exact * (1 + 1 / 64) + 1
