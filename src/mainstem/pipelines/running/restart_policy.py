"""The lifecycle of one pipeline: running, backoff after a failure, giving up. Pure.

    starting -> running -> (waiting -> starting)* -> failed | finished | stopped

Guarantees: the backoff is multiplied from the initial to the maximum one; a successful batch resets
the number of failures; a failure that no retry can fix is final at once.
"""

import enum

from mainstem.pipelines.file.model import RetrySettings


class PipelineState(enum.StrEnum):
    """The state of a pipeline."""

    DISABLED = "disabled"
    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"  # for the next start after a failure
    FAILED = "failed"
    FINISHED = "finished"
    STOPPED = "stopped"


ENDED = frozenset(
    {PipelineState.DISABLED, PipelineState.FAILED, PipelineState.FINISHED, PipelineState.STOPPED}
)


class RestartPolicy:
    """Decides when to start; the runner acts. Times are seconds of one monotonic clock."""

    def __init__(self, retry: RetrySettings, *, enabled: bool = True) -> None:
        self._retry = retry
        self.state = PipelineState.WAITING if enabled else PipelineState.DISABLED
        self.error = ""
        self.restarts = 0
        self._failures = 0
        self._starts_at = float("-inf")

    @property
    def has_ended(self) -> bool:
        """Whether the state is final."""
        return self.state in ENDED

    def is_due(self, now: float) -> bool:
        """Whether it is time to start."""
        return self.state is PipelineState.WAITING and now >= self._starts_at

    def pause_left(self, now: float) -> float:
        """Seconds until the next start; 0 unless waiting."""
        return max(0.0, self._starts_at - now) if self.state is PipelineState.WAITING else 0.0

    def starting(self) -> None:
        """A start is in progress."""
        assert self.state is PipelineState.WAITING, self.state
        if self._failures:
            self.restarts += 1
        self.state = PipelineState.STARTING

    def started(self) -> None:
        """The queries were started; no batch has succeeded yet."""
        self.state = PipelineState.RUNNING

    def progressed(self) -> None:
        """A batch succeeded: resets the number of failures."""
        self._failures = 0
        self.error = ""

    def failed(self, now: float, error: str, *, retriable: bool = True) -> None:
        """It ended with an error."""
        self.error = error
        self._failures += 1
        bound = self._retry.max_retries
        if not retriable or (bound >= 0 and self._failures > bound):
            self.state = PipelineState.FAILED
            return
        self.state = PipelineState.WAITING
        self._starts_at = now + self.pause_ms(self._failures) / 1000

    def finished(self) -> None:
        """It completed all its work."""
        self.state = PipelineState.FINISHED
        self.error = ""

    def stopped(self) -> None:
        """It was stopped on request."""
        if not self.has_ended:
            self.state = PipelineState.STOPPED

    def pause_ms(self, failures: int) -> float:
        """The backoff after a number of consecutive failures."""
        # The exponent is bounded so that no float overflows, however long an outage lasts.
        grown = self._retry.initial_backoff_ms * self._retry.backoff_multiplier ** min(
            failures - 1, 64
        )
        return min(float(self._retry.max_backoff_ms), grown)
