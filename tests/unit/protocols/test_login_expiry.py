"""A login that has an end is reported once that is reached, by the wall clock and not before."""

from collections.abc import Awaitable, Callable
from typing import Any

from mainstem.protocols.login_expiry import LoginExpiry
from mainstem.protocols.runner import Done, Stop
from mainstem.security.principals import NOBODY, Identity


class ManualClock:
    """A wall clock and timers that move only when they are told to; each may move alone."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.timers: list[tuple[int, Callable[[], None]]] = []
        self.expired = 0
        self.expiry = LoginExpiry(self, self, self._on_expired)

    def _on_expired(self) -> None:
        self.expired += 1

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        return self.now_ms / 1_000

    def run(self, work: Awaitable[Any], done: Done) -> Stop:
        raise AssertionError("nothing here takes time")

    def soon(self, call: Callable[[], None]) -> object:
        raise AssertionError("nothing is due at once")

    def later(self, delay_ms: int, call: Callable[[], None]) -> object:
        self.timers.append((delay_ms, call))
        return None

    def fire(self) -> int:
        """Let the oldest timer fire; after which delay."""
        delay_ms, call = self.timers.pop(0)
        call()
        return delay_ms


def login(until_ms: int | None) -> Identity:
    return Identity(NOBODY.principal, until_ms=until_ms)


def test_a_login_without_an_end_needs_no_timer() -> None:
    clock = ManualClock()
    clock.expiry.note(login(None))
    assert clock.timers == []


def test_a_login_expires_at_its_end() -> None:
    clock = ManualClock()
    clock.expiry.note(login(clock.now_ms + 500))
    clock.now_ms += 500
    assert clock.fire() == 500
    assert clock.expired == 1
    assert clock.timers == []


def test_a_login_that_was_renewed_holds_until_its_new_end() -> None:
    clock = ManualClock()
    clock.expiry.note(login(clock.now_ms + 500))
    clock.expiry.note(login(clock.now_ms + 900))
    clock.now_ms += 500
    clock.fire()
    assert clock.expired == 0
    assert len(clock.timers) == 1, "timers do not pile up"
    clock.now_ms += 400
    clock.fire()
    assert clock.expired == 1


def test_a_wall_clock_that_is_set_back_delays_the_end_and_does_not_cancel_it() -> None:
    clock = ManualClock()
    clock.expiry.note(login(clock.now_ms + 500))
    clock.now_ms += 200
    clock.fire()
    assert clock.expired == 0
    clock.now_ms += 300
    assert clock.fire() == 300
    assert clock.expired == 1
