"""The course of one pipeline's life: when it runs, rests after a failure, gives up. Pure.

    starting -> running -> (waiting -> starting)* -> failed | finished | stopped

Promises: the pause doubles (or as set) from the first to the longest; a batch that succeeded ends
the row of failures; a failure that no waiting can mend is final at once.
"""

import enum

from mainstem.pipelines.file.model import RetrySettings


class State(enum.StrEnum):
    """Where a pipeline is in its course."""

    DISABLED = "disabled"
    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"  # for the next start after a failure
    FAILED = "failed"
    FINISHED = "finished"
    STOPPED = "stopped"


ENDED = frozenset({State.DISABLED, State.FAILED, State.FINISHED, State.STOPPED})


class RestartPolicy:
    """Decides; the runner acts. Times are seconds of one monotonic clock."""

    def __init__(self, retry: RetrySettings, *, enabled: bool = True) -> None:
        self._retry = retry
        self.state = State.WAITING if enabled else State.DISABLED
        self.error = ""
        self.restarts = 0
        self._failures = 0
        self._starts_at = float("-inf")

    @property
    def has_ended(self) -> bool:
        """Whether nothing will happen any more."""
        return self.state in ENDED

    def is_due(self, now: float) -> bool:
        """Whether it is time to start."""
        return self.state is State.WAITING and now >= self._starts_at

    def pause_left(self, now: float) -> float:
        """Seconds until the next start; 0 unless waiting."""
        return max(0.0, self._starts_at - now) if self.state is State.WAITING else 0.0

    def starting(self) -> None:
        """A start is under way."""
        assert self.state is State.WAITING, self.state
        if self._failures:
            self.restarts += 1
        self.state = State.STARTING

    def started(self) -> None:
        """The queries run; whether they get anywhere is not known yet."""
        self.state = State.RUNNING

    def progressed(self) -> None:
        """A batch arrived: what failed before is mended."""
        self._failures = 0
        self.error = ""

    def failed(self, now: float, error: str, *, retriable: bool = True) -> None:
        """It ended by an error."""
        self.error = error
        self._failures += 1
        bound = self._retry.max_retries
        if not retriable or (bound >= 0 and self._failures > bound):
            self.state = State.FAILED
            return
        self.state = State.WAITING
        self._starts_at = now + self.pause_ms(self._failures) / 1000

    def finished(self) -> None:
        """It did all there was to do."""
        self.state = State.FINISHED
        self.error = ""

    def stopped(self) -> None:
        """Somebody asked it to stop."""
        if not self.has_ended:
            self.state = State.STOPPED

    def pause_ms(self, failures: int) -> float:
        """The pause after so many failures in a row."""
        # The exponent is bounded so that no float overflows, however long an outage lasts.
        grown = self._retry.initial_backoff_ms * self._retry.backoff_multiplier ** min(
            failures - 1, 64
        )
        return min(float(self._retry.max_backoff_ms), grown)
