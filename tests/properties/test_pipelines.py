"""Pipelines: no secret survives, no pause is too long, no rate is exceeded."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mainstem.pipelines.file.model import RetrySettings, SourceRate
from mainstem.pipelines.file.secrets import Secrets
from mainstem.pipelines.running.rate_limit import INTERVAL_MS_MIN, batch_pace_of
from mainstem.pipelines.running.restart_policy import RestartPolicy

on_a_busy_machine = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@on_a_busy_machine
@given(
    st.lists(st.text(min_size=4, max_size=20), min_size=1, max_size=5),
    st.text(max_size=10),
    st.integers(0, 4),
)
def test_no_secret_survives_in_any_text(values: list[str], around: str, which: int) -> None:
    secrets = Secrets()
    for value in values:
        secrets.add(value, "")
    hidden = values[which % len(values)]
    shown = secrets.redact(f"{around}|{hidden}|{around}")
    assert f"|{hidden}|" not in shown or hidden in around


@on_a_busy_machine
@given(
    failures=st.integers(1, 10_000),
    first=st.integers(1, 10_000),
    longest=st.integers(1, 100_000),
    factor=st.floats(1, 10),
)
def test_no_pause_is_longer_than_the_longest(
    failures: int, first: int, longest: int, factor: float
) -> None:
    retry = RetrySettings(
        max_retries=-1, initial_backoff_ms=first, max_backoff_ms=longest, backoff_multiplier=factor
    )
    course = RestartPolicy(retry)
    assert 0 < course.pause_ms(failures) <= longest
    assert course.pause_ms(failures) <= course.pause_ms(failures + 1)


@on_a_busy_machine
@given(
    st.integers(1, 10**6),
    st.none() | st.integers(1, 10**6),
    st.none() | st.integers(1, 10**6),
)
def test_the_rate_is_never_exceeded(
    per_second: int, burst: int | None, in_flight: int | None
) -> None:
    rate = SourceRate(events_per_second=per_second, burst_size=burst, max_in_flight=in_flight)
    pace = batch_pace_of(rate, 200)
    assert pace.rows_per_batch_max is not None
    assert pace.rows_per_batch_max >= 1
    assert pace.rows_per_batch_max * 1000 <= pace.interval_ms * per_second
    assert pace.interval_ms >= INTERVAL_MS_MIN or in_flight is not None
    assert in_flight is None or pace.rows_per_batch_max <= in_flight
