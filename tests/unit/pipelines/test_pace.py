"""A rate limit as batches."""

from hypothesis import given
from hypothesis import strategies as st

from mainstem.pipelines.file.model import SinkRate, SourceRate
from mainstem.pipelines.running.pace import INTERVAL_MS_MIN, Pace, pace_of


def test_without_a_limit_only_the_interval_counts() -> None:
    assert pace_of(None, 200) == Pace(200, None)


def test_a_tenth_of_a_second_is_let_through_at_once() -> None:
    assert pace_of(SourceRate(events_per_second=1_000), 200) == Pace(100, 100)
    assert pace_of(SinkRate(events_per_second=5), 200) == Pace(200, 1)


def test_bursts_and_records_in_flight_are_bounded_as_asked() -> None:
    assert pace_of(SourceRate(events_per_second=100, burst_size=500), 200) == Pace(5_000, 500)
    rate = SourceRate(events_per_second=100, burst_size=500, max_in_flight=50)
    assert pace_of(rate, 200) == Pace(500, 50)
    assert pace_of(SinkRate(events_per_second=100, burst_capacity=20), 200) == Pace(200, 20)


@given(
    st.integers(1, 10**6),
    st.none() | st.integers(1, 10**6),
    st.none() | st.integers(1, 10**6),
)
def test_the_rate_is_never_exceeded(
    per_second: int, burst: int | None, in_flight: int | None
) -> None:
    rate = SourceRate(events_per_second=per_second, burst_size=burst, max_in_flight=in_flight)
    pace = pace_of(rate, 200)
    assert pace.rows_per_batch_max is not None
    assert pace.rows_per_batch_max >= 1
    assert pace.rows_per_batch_max * 1000 <= pace.interval_ms * per_second
    assert pace.interval_ms >= INTERVAL_MS_MIN or in_flight is not None
    assert in_flight is None or pace.rows_per_batch_max <= in_flight
