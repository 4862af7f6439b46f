"""Quotas: rate limits per second, and how long a client must wait after exceeding one.

    meter = quotas.meter("alice", "app-1", "10.0.0.7")
    throttle_ms = meter.charge(PRODUCE_BYTES, 60_000)

Each limit is a token bucket that fills at its rate and may be overdrawn; then the client waits
until it is no longer negative, as Kafka's clients do for the throttle time in a response. Entities
are Kafka's: the most specific of user and client id that has a limit decides, and limits of an
address apply in addition.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec import Struct

from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, InvalidRequest

PRODUCE_BYTES: Final = "producer_byte_rate"
FETCH_BYTES: Final = "consumer_byte_rate"
REQUESTS: Final = "request_rate"
MUTATIONS: Final = "controller_mutation_rate"
CONNECTIONS: Final = "connection_creation_rate"

LIMITS_OF_CLIENTS: Final = frozenset({PRODUCE_BYTES, FETCH_BYTES, REQUESTS, MUTATIONS})
LIMITS_OF_ADDRESSES: Final = frozenset({PRODUCE_BYTES, FETCH_BYTES, REQUESTS, CONNECTIONS})

USER, CLIENT, ADDRESS = "user", "client-id", "ip"
BURST_S: Final = 1.0
THROTTLE_MS_MAX: Final = 30_000
BUCKETS_MAX: Final = 50_000
ENTITIES_MAX: Final = 100_000
NAME_LENGTH_MAX: Final = 4_096

Entity = tuple[tuple[str, str | None], ...]  # sorted (type, name); the name None is the default
Limits = Mapping[str, float]


class QuotaEntry(Struct, frozen=True):
    """The limits of one entity."""

    entity: Entity
    limits: dict[str, float]


class QuotaBucket:
    """Fills at ``rate_per_s`` up to ``burst``; may be overdrawn."""

    __slots__ = ("_at", "_burst", "_level", "rate_per_s")

    def __init__(self, rate_per_s: float, burst: float, now: float) -> None:
        self.rate_per_s = rate_per_s
        self._burst = burst
        self._level = burst
        self._at = now

    def charge(self, amount: float, now: float) -> float:
        """Take an amount; seconds until the bucket is no longer negative, 0 if it is not."""
        # Called for every read of a limited connection, so with as few calls as possible.
        level = min(self._level + (now - self._at) * self.rate_per_s, self._burst)
        self._at = now
        self._level = level = level - amount
        return -level / self.rate_per_s if level < 0 else 0.0

    def refuses(self, amount: float, now: float) -> bool:
        """Take an amount if it is available; returns whether it was not."""
        self._level = self._filled(now)
        if self._level < amount:
            return True
        self._level -= amount
        return False

    def _filled(self, now: float) -> float:
        gained = (now - self._at) * self.rate_per_s
        self._at = now
        return min(self._level + gained, self._burst)


class QuotaMeter:
    """The buckets that one connection is charged to. Cheap while no limit applies."""

    __slots__ = ("_buckets", "_client", "_quotas", "_user", "_version", "address")

    def __init__(self, quotas: "Quotas", user: str, client: str, address: str) -> None:
        self._quotas = quotas
        self._user = user
        self._client = client
        self.address = address
        self._version = -1
        self._buckets: dict[str, tuple[QuotaBucket, ...]] = {}

    def charge(self, kind: str, amount: float) -> int:
        """Charge an amount; returns the milliseconds that the client has to wait."""
        quotas = self._quotas
        if not quotas.limited:
            return 0
        if self._version != quotas.version:
            self._version = quotas.version
            self._buckets = {}
        buckets = self._buckets.get(kind)
        if buckets is None:
            buckets = quotas.buckets(kind, self._user, self._client, self.address)
            self._buckets[kind] = buckets
        if not buckets:
            return 0
        now = quotas.now()
        wait_s = 0.0
        for bucket in buckets:
            wait_s = max(wait_s, bucket.charge(amount, now))
        return min(THROTTLE_MS_MAX, round(wait_s * 1000)) if wait_s else 0


class Quotas:
    """All limits, and the buckets in use. ``version`` changes when a limit does."""

    def __init__(self, clock: Clock) -> None:
        self.now: Callable[[], float] = clock.monotonic
        self.version = 0
        self.limited = False
        self._entries: dict[Entity, dict[str, float]] = {}
        self._buckets: dict[tuple[object, ...], QuotaBucket] = {}

    def load(self, entries: Iterable[QuotaEntry]) -> None:
        """Replace all limits; buckets whose rate stays keep their level."""
        self._entries = {entry.entity: entry.limits for entry in entries}
        self.limited = bool(self._entries)
        self.version += 1

    def meter(self, user: str, client: str, address: str) -> QuotaMeter:
        """What a connection of that user, client and address is charged to."""
        return QuotaMeter(self, user, client, address)

    def buckets(self, kind: str, user: str, client: str, address: str) -> tuple[QuotaBucket, ...]:
        """The buckets that an amount is taken out of."""
        found = []
        for entity, named in _precedence(user, client):
            rate = self._entries.get(entity, {}).get(kind)
            if rate is not None:
                found.append(self._bucket((kind, *named), rate, rate * BURST_S))
                break
        rate = self._of_address(kind, address)
        if rate is not None:
            found.append(self._bucket((kind, ADDRESS, address), rate, rate * BURST_S))
        return tuple(found)

    def connection_refused(self, address: str, per_minute: int | None) -> bool:
        """Count a new connection; returns whether its address exceeds its limit.

        ``per_minute`` applies to addresses without a limit of their own; None: no limit.
        """
        rate = self._of_address(CONNECTIONS, address)
        burst = max(1.0, rate or 0.0)
        if rate is None:
            if per_minute is None:
                return False
            rate, burst = per_minute / 60, float(per_minute)
        bucket = self._bucket((CONNECTIONS, ADDRESS, address), rate, burst)
        return bucket.refuses(1.0, self.now())

    def _of_address(self, kind: str, address: str) -> float | None:
        for name in (address, None):
            rate = self._entries.get(((ADDRESS, name),), {}).get(kind)
            if rate is not None:
                return rate
        return None

    def _bucket(self, key: tuple[object, ...], rate: float, burst: float) -> QuotaBucket:
        bucket = self._buckets.pop(key, None)
        if bucket is None or bucket.rate_per_s != rate:
            bucket = QuotaBucket(rate, burst, self.now())
            if len(self._buckets) >= BUCKETS_MAX:
                del self._buckets[next(iter(self._buckets))]  # the least recently used
        self._buckets[key] = bucket
        return bucket


def _precedence(user: str, client: str) -> Iterable[tuple[Entity, tuple[object, ...]]]:
    """Entities from the most to the least specific, each with the key of its buckets."""
    users = ((user, user), (None, user))
    for name, who in users:
        for client_name in (client, None):
            yield ((CLIENT, client_name), (USER, name)), (who, client)
        yield ((USER, name),), (who, None)
    for client_name in (client, None):
        yield ((CLIENT, client_name),), (None, client)


def entity_of(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """An entity in canonical order.

    Raises:
        InvalidRequest: parts that cannot be combined.
    """
    listed = list(parts)
    kinds = {kind for kind, _ in listed}
    fits = kinds <= {USER, CLIENT} or kinds == {ADDRESS}
    if not listed or len(kinds) != len(listed) or not fits:
        raise InvalidRequest(
            ErrorCode.INVALID_REQUEST,
            f"no quota can be for {', '.join(kind for kind, _ in listed)[:200] or 'no entity'}",
            remedy=f"name {USER}, {CLIENT}, both, or {ADDRESS} alone",
        )
    if any(name is not None and not 0 < len(name) <= NAME_LENGTH_MAX for _, name in listed):
        raise InvalidRequest(ErrorCode.INVALID_REQUEST, "a name is empty or too long")
    return tuple(sorted(listed, key=lambda part: part[0]))


def check_limits(entity: Entity, limits: Limits) -> None:
    """Refuse limits that the entity cannot have.

    Raises:
        InvalidRequest: an unknown limit, or one that is not above 0.
    """
    allowed = LIMITS_OF_ADDRESSES if entity[0][0] == ADDRESS else LIMITS_OF_CLIENTS
    for name, value in limits.items():
        if name not in allowed:
            raise InvalidRequest(
                ErrorCode.INVALID_REQUEST,
                f"{name[:100]!r} is not a limit of {entity[0][0]}",
                remedy=f"known are {', '.join(sorted(allowed))}",
            )
        if not 0 < value < float("inf"):
            raise InvalidRequest(ErrorCode.INVALID_REQUEST, f"{name} must be above 0, not {value}")
