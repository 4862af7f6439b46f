"""Expiry of a login on an open connection: tokens are valid for a limited time.

For protocols in which the server then closes the connection (AMQP, native). A Kafka client may log
in again instead, so its login is checked with each request; MQTT connections are checked with
keep-alive.
"""

from collections.abc import Callable
from functools import partial

from mainstem.model.clock import Clock
from mainstem.protocols.runner import Runner
from mainstem.security.principals import Identity


class LoginExpiry:
    """Calls ``expired`` when the login noted last expires."""

    def __init__(self, runner: Runner, clock: Clock, expired: Callable[[], None]) -> None:
        self._runner = runner
        self._wall_ms = clock.wall_ms
        self._expired = expired
        self._until_ms: int | None = None

    def note(self, identity: Identity) -> None:
        """Watch a login, in place of the previous one."""
        self._until_ms = identity.until_ms
        if identity.until_ms is not None:
            self._wait(identity.until_ms)

    def _wait(self, until_ms: int) -> None:
        delay_ms = max(0, until_ms - self._wall_ms())
        self._runner.later(delay_ms, partial(self._check, until_ms))

    def _check(self, until_ms: int) -> None:
        if self._until_ms != until_ms:
            return  # the renewed login has its own timer
        if until_ms <= self._wall_ms():
            self._expired()
        else:
            # Timers use the monotonic clock; the wall clock may have been set back.
            self._wait(until_ms)
