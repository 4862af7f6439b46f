"""A rate limit as batches."""

from mainstem.pipelines.file.model import SinkRate, SourceRate
from mainstem.pipelines.running.rate_limit import BatchPace, batch_pace_of


def test_without_a_limit_only_the_interval_counts() -> None:
    assert batch_pace_of(None, 200) == BatchPace(200, None)


def test_a_tenth_of_a_second_is_let_through_at_once() -> None:
    assert batch_pace_of(SourceRate(events_per_second=1_000), 200) == BatchPace(100, 100)
    assert batch_pace_of(SinkRate(events_per_second=5), 200) == BatchPace(200, 1)


def test_bursts_and_records_in_flight_are_bounded_as_asked() -> None:
    assert batch_pace_of(SourceRate(events_per_second=100, burst_size=500), 200) == BatchPace(
        5_000, 500
    )
    rate = SourceRate(events_per_second=100, burst_size=500, max_in_flight=50)
    assert batch_pace_of(rate, 200) == BatchPace(500, 50)
    assert batch_pace_of(SinkRate(events_per_second=100, burst_capacity=20), 200) == BatchPace(
        200, 20
    )
