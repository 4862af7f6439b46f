"""The end of a login that has a time: tokens are not good for ever."""

from collections.abc import Callable

from mainstem.model.clock import Clock
from mainstem.protocols.amqp.link import Runner
from mainstem.security.principals import Identity


class Expiry:
    """Calls ``expired`` when the login that was noted last is over."""

    def __init__(self, runner: Runner, clock: Clock, expired: Callable[[], None]) -> None:
        self._runner = runner
        self._wall_ms = clock.wall_ms
        self._expired = expired
        self._until_ms: int | None = None

    def note(self, identity: Identity) -> None:
        """Somebody has shown who he is, or has shown it anew."""
        self._until_ms = identity.until_ms
        if self._until_ms is not None:
            self._runner.later(max(0, self._until_ms - self._wall_ms()), self._check)

    def _check(self) -> None:
        if self._until_ms is not None and self._until_ms <= self._wall_ms():
            self._expired()
