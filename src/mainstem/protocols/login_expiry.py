"""The end of a login on a connection that stays open: tokens are valid for a limited time.

For protocols whose server ends the connection (AMQP, native). A Kafka client may log in again
instead, so its login is checked with each request; MQTT connections are checked with keep-alive.
"""

from collections.abc import Callable
from functools import partial

from mainstem.model.clock import Clock
from mainstem.protocols.runner import Runner
from mainstem.security.principals import Identity


class LoginExpiry:
    """Calls ``expired`` when the login that was noted last is over."""

    def __init__(self, runner: Runner, clock: Clock, expired: Callable[[], None]) -> None:
        self._runner = runner
        self._wall_ms = clock.wall_ms
        self._expired = expired
        self._until_ms: int | None = None

    def note(self, identity: Identity) -> None:
        """Watch a login, in place of the one before."""
        self._until_ms = identity.until_ms
        if identity.until_ms is not None:
            self._wait(identity.until_ms)

    def _wait(self, until_ms: int) -> None:
        delay_ms = max(0, until_ms - self._wall_ms())
        self._runner.later(delay_ms, partial(self._check, until_ms))

    def _check(self, until_ms: int) -> None:
        if self._until_ms != until_ms:
            return  # it was renewed, and has a timer of its own
        if until_ms <= self._wall_ms():
            self._expired()
        else:
            # Timers follow another clock than dates, which may have been set back.
            self._wait(until_ms)
