"""The schedule of a load generator."""

from hypothesis import given
from hypothesis import strategies as st

from mainstem.cli.commands.bench_schedule import SendSchedule


def test_a_late_message_keeps_the_moment_at_which_it_was_due() -> None:
    pace = SendSchedule(1_000, rate=1_000)
    stalled_until = 1_000 + 5_000_000
    assert pace.due_ns(2, stalled_until) == 1_000 + 2_000_000
    assert pace.wait_ns(2, stalled_until) == 0
    assert pace.wait_ns(7, stalled_until) == 2_000_000


def test_without_a_rate_everything_is_due_now() -> None:
    assert SendSchedule(0, None).due_ns(5, 77) == 77
    assert SendSchedule(0, None).wait_ns(5, 77) == 0


@given(st.integers(0, 10**15), st.floats(0.1, 1e6), st.integers(0, 10**6), st.integers(0, 10**15))
def test_waiting_ends_exactly_when_the_message_is_due(
    start: int, rate: float, index: int, now: int
) -> None:
    pace = SendSchedule(start, rate)
    wait = pace.wait_ns(index, now)
    assert wait == 0 or now + wait == pace.due_ns(index, now + wait)
