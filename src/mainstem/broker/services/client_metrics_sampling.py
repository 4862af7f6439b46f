"""Which client is asked for which metrics, and whether it comes too often. Pure.

Every client is compared with every subscription: the metrics of all that match are asked for, at
the shortest of their intervals. The number of a subscription is made of what is asked for, so that
it stays the same over restarts and changes when an operator changes something.
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
"""Clients remembered; the one heard of longest ago is forgotten, and then asks anew."""
EARLY = 0.9
"""A client's clock and ours differ a little: from this part of an interval on, it has passed."""

Texts = Mapping[str, str]


class TelemetrySubscription(Struct, frozen=True):
    """What a client is asked for."""

    id: int
    interval_ms: int
    metrics: tuple[str, ...]

    def wants(self, name: str) -> bool:
        """Whether a metric was asked for."""
        return self.metrics == (ALL_METRICS,) or name.startswith(self.metrics)


class _Subscription(Struct, frozen=True):
    interval_ms: int
    metrics: tuple[str, ...]
    selectors: tuple[tuple[str, Matches], ...]


class Instance(Struct):
    """One client, as far as it was heard of. Times are those of a monotonic clock, in ms."""

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
        """Let these be all subscriptions."""
        self._subscriptions = [_parsed(texts) for _, texts in sorted(subscriptions.items())]
        self._version += 1

    def ask(self, instance: bytes, client: MetricsClient, now_ms: int) -> TelemetrySubscription:
        """What a client is asked for.

        Raises:
            Unavailable: it comes back before its interval has passed, and nothing has changed.
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
        """Let a client push.

        Raises:
            InvalidRequest: it has said that it would go.
            Unavailable: it comes back before its interval has passed.
        """
        known = self._instance(instance, client)
        if known.is_terminated:
            raise InvalidRequest(ErrorCode.INVALID_REQUEST, "the client had said good-bye")
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
            # The client goes by its former interval, and shall hear at once that it has another.
            known.pushed_ms = None
        self._instances[instance] = known
        return known

    def _is_stale(self, instance: bytes) -> bool:
        return self._instances[instance].version != self._version

    @staticmethod
    def _not_too_soon(known: Instance, last_ms: int, now_ms: int) -> None:
        if now_ms - last_ms < known.asked.interval_ms * EARLY:
            raise Unavailable(
                ErrorCode.THROTTLED, f"asked for every {known.asked.interval_ms} ms only"
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
    """The way Kafka's clients show an id: url-safe base64 without padding."""
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
