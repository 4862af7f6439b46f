"""Chooses the metrics each client has to push, and limits how often. Pure.

Every client is compared with every subscription: the metrics of all that match are requested, at
the shortest of their intervals. The subscription id is computed from what is requested, so that it
stays the same over restarts and changes when an operator changes a subscription.
"""

from base64 import urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Mapping
from zlib import crc32

from msgspec import Struct

from mainstem.broker.api.client_metrics import MetricsClient
from mainstem.coordination.pattern import Matches, compile_pattern
from mainstem.model.config.client_metrics import (
    ALL_METRICS,
    CLIENT_METRICS_KEYS,
    INTERVAL,
    INTERVAL_MS_DEFAULT,
    MATCH,
    METRICS,
    selectors_of,
)
from mainstem.model.errors import ErrorCode, InvalidRequest, Unavailable

INSTANCES_MAX = 16_384
"""Clients kept; the one least recently active is dropped, and has to subscribe again."""
EARLY = 0.9
"""Clocks differ a little: an interval counts as passed after this fraction of it."""

Texts = Mapping[str, str]


class TelemetrySubscription(Struct, frozen=True):
    """The metrics requested of a client."""

    id: int
    interval_ms: int
    metrics: tuple[str, ...]

    def includes(self, name: str) -> bool:
        """Whether a metric was requested."""
        return self.metrics == (ALL_METRICS,) or name.startswith(self.metrics)


class _Subscription(Struct, frozen=True):
    interval_ms: int
    metrics: tuple[str, ...]
    selectors: tuple[tuple[str, Matches], ...]


class Instance(Struct):
    """State of one client. Times are those of a monotonic clock, in ms."""

    asked: TelemetrySubscription
    version: int
    got_ms: int | None = None
    pushed_ms: int | None = None
    may_ask_again: bool = False
    is_terminated: bool = False


class ClientMetricsSampler:
    """Assigns metric subscriptions to clients and rejects those that push too often."""

    def __init__(self) -> None:
        self._version = 0
        self._subscriptions: list[_Subscription] = []
        self._instances: OrderedDict[bytes, Instance] = OrderedDict()

    def load(self, subscriptions: Mapping[str, Texts]) -> None:
        """Replace all subscriptions."""
        self._subscriptions = [_parsed(texts) for _, texts in sorted(subscriptions.items())]
        self._version += 1

    def ask(self, instance: bytes, client: MetricsClient, now_ms: int) -> TelemetrySubscription:
        """The subscription of a client.

        Raises:
            Unavailable: it asks again before its interval has passed, and nothing has changed.
        """
        fresh = instance not in self._instances or self._is_stale(instance)
        known = self._instance(instance, client)
        if not fresh and not known.may_ask_again:
            last = max(known.got_ms or 0, known.pushed_ms or 0)
            self._not_too_soon(known, last, now_ms)
        known.may_ask_again = False
        known.got_ms = now_ms
        return known.asked

    def admit(
        self, instance: bytes, client: MetricsClient, now_ms: int, *, terminating: bool
    ) -> Instance:
        """Admit a push of a client.

        Raises:
            InvalidRequest: it already sent its terminating push.
            Unavailable: it pushes again before its interval has passed.
        """
        known = self._instance(instance, client)
        if known.is_terminated:
            raise InvalidRequest(
                ErrorCode.INVALID_REQUEST, "the client already sent its terminating push"
            )
        asked_since = known.pushed_ms is None or (known.got_ms or 0) > known.pushed_ms
        if not asked_since and not terminating:
            assert known.pushed_ms is not None, "it has pushed"
            self._not_too_soon(known, known.pushed_ms, now_ms)
        known.pushed_ms = now_ms
        known.is_terminated = terminating
        return known

    def _instance(self, instance: bytes, client: MetricsClient) -> Instance:
        known = self._instances.pop(instance, None)
        if known is None:
            known = Instance(self._asked(instance, client), self._version)
            if len(self._instances) >= INSTANCES_MAX:
                self._instances.popitem(last=False)
        elif known.version != self._version:
            known.asked = self._asked(instance, client)
            known.version = self._version
            # The client uses its former interval, and must get the new one without delay.
            known.pushed_ms = None
        self._instances[instance] = known
        return known

    def _is_stale(self, instance: bytes) -> bool:
        return self._instances[instance].version != self._version

    @staticmethod
    def _not_too_soon(known: Instance, last_ms: int, now_ms: int) -> None:
        if now_ms - last_ms < known.asked.interval_ms * EARLY:
            raise Unavailable(
                ErrorCode.THROTTLED, f"the push interval is {known.asked.interval_ms} ms"
            )

    def _asked(self, instance: bytes, client: MetricsClient) -> TelemetrySubscription:
        facts = {
            "client_instance_id": instance_text(instance),
            "client_id": client.client_id,
            "client_software_name": client.software_name,
            "client_software_version": client.software_version,
            "client_source_address": client.address,
            "client_source_port": str(client.port),
        }
        metrics: set[str] = set()
        interval_ms = INTERVAL_MS_DEFAULT
        matching = [
            each
            for each in self._subscriptions
            if all(matches(facts[name]) for name, matches in each.selectors)
        ]
        if matching:
            interval_ms = min(each.interval_ms for each in matching)
        for each in matching:
            metrics.update(each.metrics)
        chosen = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
        number = crc32("\n".join((str(interval_ms), *chosen)).encode()) & 0x7FFFFFFF
        return TelemetrySubscription(number, interval_ms, chosen)


def instance_text(instance: bytes) -> str:
    """The form in which Kafka's clients print an id: url-safe base64 without padding."""
    return urlsafe_b64encode(instance).decode().rstrip("=")


def _parsed(texts: Texts) -> _Subscription:
    metrics = CLIENT_METRICS_KEYS[METRICS].parse(texts.get(METRICS, ""))
    interval = CLIENT_METRICS_KEYS[INTERVAL].parse(texts.get(INTERVAL, str(INTERVAL_MS_DEFAULT)))
    assert isinstance(metrics, tuple), "it is a list"
    assert isinstance(interval, int), "it is a number"
    selectors = selectors_of(texts.get(MATCH, ""))
    return _Subscription(
        interval, metrics, tuple((name, compile_pattern(p)) for name, p in selectors.items())
    )
