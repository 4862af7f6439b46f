"""When nothing more is read of a client: too much is open, or a quota is used up."""

from mainstem.protocols.native.link import Runner
from mainstem.protocols.session import Sender


class Brake:
    """Holds one connection for as long as there is a reason to."""

    def __init__(self, sender: Sender, runner: Runner) -> None:
        self._sender = sender
        self._runner = runner
        self._is_full = False
        self._waits = 0

    @property
    def is_on(self) -> bool:
        """Whether nothing is read."""
        return self._is_full or self._waits > 0

    def fill(self, is_full: bool) -> None:  # noqa: FBT001 - a callback
        """As many requests are open as may be, or fewer again."""
        self._is_full = is_full
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
