"""When nothing more is read of a client: too much is unanswered, or a quota is used up.

Pure. Reading goes on when the last reason is gone; no reason ends another one's wait.
"""

from mainstem.protocols.runner import Runner
from mainstem.protocols.session import Sender


class Backpressure:
    """Pauses reading from one connection for as long as there is a reason to."""

    def __init__(self, sender: Sender, runner: Runner) -> None:
        self._sender = sender
        self._runner = runner
        self._reasons: set[str] = set()
        self._waits = 0

    @property
    def is_on(self) -> bool:
        """Whether nothing is read."""
        return bool(self._reasons) or self._waits > 0

    def put(self, reason: str, *, is_on: bool) -> None:
        """There is a reason to read nothing, or there is none any more."""
        if is_on == (reason in self._reasons):
            return
        if is_on:
            self._reasons.add(reason)
        else:
            self._reasons.discard(reason)
        self._apply()

    def hold(self, wait_ms: int) -> None:
        """A quota is used up for so long."""
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
