"""Lock-out: repeated failures lock a pair of user and address; many names, the address.

Pure. A user is never locked as such, so that an attacker cannot lock out a user at other addresses;
and one client that keeps retrying an old password does not lock out other users behind the same
address. Each further failure while the count is kept doubles the time, up to a bound. Attempts
during a lock are not checked and do not count.
"""

from typing import Final, TypeVar

from msgspec import Struct, field

from mainstem.model.clock import Clock

REMEMBERED_MAX: Final = 10_000
_DOUBLINGS_MAX: Final = 10

KeyT = TypeVar("KeyT")


class LockoutSettings(Struct, frozen=True, kw_only=True):
    """When to lock, and for how long. ``names_max`` is how many names an address may try."""

    failures_max: int = 5
    names_max: int = 50
    lock_ms: int = 1_000
    lock_ms_max: int = 300_000
    forget_ms: int = 900_000


class _Count(Struct):
    failures: int = 0
    last: float = 0.0
    locked_until: float = 0.0
    names: set[str] = field(default_factory=set)


class Lockout:
    """Counts recent failures by user and address."""

    def __init__(self, settings: LockoutSettings, clock: Clock) -> None:
        self._settings = settings
        self._now = clock.monotonic
        self._pairs: dict[tuple[str, str], _Count] = {}
        self._addresses: dict[str, _Count] = {}

    def locked_ms(self, user: str, address: str) -> int:
        """How long logins of this user from this address are refused unchecked; 0 if not locked."""
        counts = (self._pairs.get((user, address)), self._addresses.get(address))
        until = max((count.locked_until for count in counts if count is not None), default=0.0)
        return max(0, round((until - self._now()) * 1000))

    def failed(self, user: str, address: str) -> int:
        """Count a refused login; returns the lock time in ms.

        A token without a user does not count: it cannot be guessed.
        """
        if not user:
            return 0
        settings = self._settings
        pair = self._count(self._pairs, (user, address))
        pair.failures += 1
        self._lock(pair, pair.failures - settings.failures_max)
        tried = self._count(self._addresses, address)
        if user not in tried.names and tried.failures < settings.names_max + _DOUBLINGS_MAX:
            tried.names.add(user)
            tried.failures = len(tried.names)
            self._lock(tried, tried.failures - settings.names_max)
        elif user not in tried.names:
            self._lock(tried, _DOUBLINGS_MAX)
        return self.locked_ms(user, address)

    def succeeded(self, user: str, address: str) -> None:
        """Reset the pair after a successful login; the address keeps its count."""
        self._pairs.pop((user, address), None)

    def _lock(self, count: _Count, beyond: int) -> None:
        count.last = self._now()
        if beyond >= 0:
            lock_ms = self._settings.lock_ms * 2 ** min(beyond, _DOUBLINGS_MAX)
            count.locked_until = count.last + min(lock_ms, self._settings.lock_ms_max) / 1000

    def _count(self, counts: dict[KeyT, _Count], key: KeyT) -> _Count:
        count = counts.pop(key, None)
        if count is None or self._now() - count.last > self._settings.forget_ms / 1000:
            count = _Count()
            if len(counts) >= REMEMBERED_MAX:
                del counts[next(iter(counts))]  # the one whose failure is oldest
        counts[key] = count
        return count
