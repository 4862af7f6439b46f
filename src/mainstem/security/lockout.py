"""Repeated wrong passwords lock: the pair of user and address soon, the address alone later.

Pure. A user is never locked as such, so that a stranger cannot lock somebody out from elsewhere.
Each further failure while the count stands doubles the time, up to a bound. What is tried while a
lock holds is not looked at and does not count.
"""

from typing import Final

from msgspec import Struct

from mainstem.model.clock import Clock

PAIRS_REMEMBERED_MAX: Final = 10_000
_DOUBLINGS_MAX: Final = 10


class LockoutSettings(Struct, frozen=True, kw_only=True):
    """When to lock, and for how long."""

    failures_max: int = 5
    address_failures_max: int = 50
    lock_ms: int = 1_000
    lock_ms_max: int = 300_000
    forget_ms: int = 900_000


class _Count(Struct):
    failures: int = 0
    last: float = 0.0
    locked_until: float = 0.0


class Lockout:
    """Who has failed how often lately."""

    def __init__(self, settings: LockoutSettings, clock: Clock) -> None:
        self._settings = settings
        self._now = clock.monotonic
        self._counts: dict[tuple[str | None, str], _Count] = {}

    def locked_ms(self, user: str, address: str) -> int:
        """How long a login of this user from this address is refused unseen; 0 if it is not."""
        now = self._now()
        until = max(
            (self._counts[key].locked_until for key in _keys(user, address) if key in self._counts),
            default=0.0,
        )
        return max(0, round((until - now) * 1000))

    def failed(self, user: str, address: str) -> int:
        """A login was refused; for how long the next ones are, in ms."""
        now = self._now()
        settings = self._settings
        limits = (settings.failures_max, settings.address_failures_max)
        for key, most in zip(_keys(user, address), limits, strict=True):
            count = self._count(key, now)
            count.failures += 1
            count.last = now
            beyond = count.failures - most
            if beyond >= 0:
                lock_ms = settings.lock_ms * 2 ** min(beyond, _DOUBLINGS_MAX)
                count.locked_until = now + min(lock_ms, settings.lock_ms_max) / 1000
        return self.locked_ms(user, address)

    def succeeded(self, user: str, address: str) -> None:
        """A login went well: its pair starts afresh, the address keeps its count."""
        self._counts.pop((user, address), None)

    def _count(self, key: tuple[str | None, str], now: float) -> _Count:
        count = self._counts.pop(key, None)
        if count is None or now - count.last > self._settings.forget_ms / 1000:
            count = _Count()
            if len(self._counts) >= PAIRS_REMEMBERED_MAX:
                del self._counts[next(iter(self._counts))]  # the one that failed longest ago
        self._counts[key] = count
        return count


def _keys(user: str, address: str) -> tuple[tuple[str | None, str], tuple[str | None, str]]:
    return (user, address), (None, address)
