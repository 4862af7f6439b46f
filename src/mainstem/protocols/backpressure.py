"""Pauses reading from a client: too many requests are unanswered, or a quota is exceeded.

Pure. Reading resumes when no reason is left; reasons are independent of each other.
"""

from mainstem.protocols.runner import Runner
from mainstem.protocols.session import Sender


class Backpressure:
    """Pauses reading from one connection while at least one reason is set."""

    def __init__(self, sender: Sender, runner: Runner) -> None:
        self._sender = sender
        self._runner = runner
        self._reasons: set[str] = set()
        self._waits = 0

    @property
    def is_on(self) -> bool:
        """Whether reading is paused."""
        return bool(self._reasons) or self._waits > 0

    def put(self, reason: str, *, is_on: bool) -> None:
        """Set or clear a reason to pause reading."""
        if is_on == (reason in self._reasons):
            return
        if is_on:
            self._reasons.add(reason)
        else:
            self._reasons.discard(reason)
        self._apply()

    def hold(self, wait_ms: int) -> None:
        """Pause reading for a time: a quota is exceeded."""
        self._waits += 1
        self._apply()
        self._runner.later(wait_ms, self._waited)

    def _waited(self) -> None:
        self._waits -= 1
        self._apply()

    def _apply(self) -> None:
        if self.is_on:
            self._sender.pause()
        else:
            self._sender.resume()
