"""Metrics pushed by clients (KIP-714), written to a log: one JSON line per push.

    {"time":"2026-01-31T12:00:00.123Z","client_instance_id":"…","client_id":"app-1",
     "software":"apache-kafka-java 4.2.0","address":"10.0.0.7","user":"User:alice",
     "terminating":false,"resource":{…},"metrics":[{"name":"…","kind":"sum","value":3.0,…}]}

Only metrics with a subscription are requested and kept. A push is limited in size before and after
decompression, in the number of its points and fields, and in frequency.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from uuid import uuid4

import msgspec

from mainstem.broker.api.client_metrics import (
    NO_INSTANCE,
    MetricsClient,
    MetricsSubscription,
    TelemetryPush,
)
from mainstem.broker.services.client_metrics_sampling import (
    ClientMetricsSampler,
    Instance,
    instance_text,
)
from mainstem.model.clock import Clock
from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest
from mainstem.model.limits import MIB
from mainstem.model.records import compression
from mainstem.placement.changes.commands import AnyFact, ClientMetricsSet
from mainstem.placement.service import PlacementService
from mainstem.telemetry.metrics import Metrics
from mainstem.telemetry.otlp import MetricPoint, PushedMetrics, decode_metrics

PUSH_BYTES_MAX = MIB
PUSH_PLAIN_BYTES_MAX = 2 * MIB
"""After decompression."""
POINTS_PER_PUSH_MAX = 5_000

CODECS = (compression.ZSTD, compression.LZ4, compression.GZIP, compression.SNAPPY)
"""Codecs that clients may use, the preferred one first."""

Write = Callable[[str], None]
_encode = msgspec.json.Encoder().encode


class TelemetryLogLine(msgspec.Struct):
    """One push as it is written."""

    time: str
    client_instance_id: str
    client_id: str
    software: str
    address: str
    user: str
    terminating: bool
    resource: dict[str, str | float | bool]
    metrics: list[MetricPoint]


class ClientMetricsService:
    """The ``ClientMetrics`` of one node; ``write`` takes lines."""

    def __init__(
        self,
        placement: PlacementService,
        clock: Clock,
        metrics: Metrics,
        write: Write,
        new_id: Callable[[], bytes] = lambda: uuid4().bytes,
    ) -> None:
        self._catalogue = placement.catalogue
        self._clock = clock
        self._metrics = metrics
        self._write = write
        self._new_id = new_id
        self._clients = ClientMetricsSampler()
        self._clients.load(self._catalogue.client_metrics)
        placement.subscribe(self._on_fact)

    def subscription(self, instance: bytes, client: MetricsClient) -> MetricsSubscription:
        """The subscription of a client; a client without an instance id is given one."""
        if instance == NO_INSTANCE:
            instance = self._new_id()
        asked = self._clients.ask(instance, client, self._now_ms())
        return MetricsSubscription(
            instance, asked.id, asked.interval_ms, asked.metrics, PUSH_BYTES_MAX, CODECS
        )

    def push(self, push: TelemetryPush, client: MetricsClient) -> None:
        """Write the metrics that a client pushed.

        Raises:
            InvalidRequest: it was not requested, is too large, or cannot be decoded.
            Unavailable: the push interval has not passed.
        """
        if push.instance == NO_INSTANCE:
            raise InvalidRequest(ErrorCode.INVALID_REQUEST, "a client without an instance id")
        known = self._clients.admit(
            push.instance, client, self._now_ms(), terminating=push.terminating
        )
        self._check(push, known)
        if not push.data or not known.asked.metrics:
            return
        pushed = _decoded(push)
        self._metrics.client_pushes += 1
        self._metrics.client_push_bytes += len(push.data)
        line = TelemetryLogLine(
            time=self._time(),
            client_instance_id=instance_text(push.instance),
            client_id=client.client_id,
            software=f"{client.software_name} {client.software_version}".strip(),
            address=client.address,
            user=client.user,
            terminating=push.terminating,
            resource=pushed.resource,
            metrics=[point for point in pushed.points if known.asked.includes(point.name)],
        )
        self._write(_encode(line).decode())

    @staticmethod
    def _check(push: TelemetryPush, known: Instance) -> None:
        if push.subscription_id != known.asked.id:
            known.may_ask_again = True
            raise InvalidRequest(
                ErrorCode.UNKNOWN_SUBSCRIPTION,
                "the subscription has changed",
                remedy="request the subscription again",
            )
        if push.codec != compression.NONE and push.codec not in CODECS:
            known.may_ask_again = True
            raise InvalidRequest(
                ErrorCode.UNSUPPORTED_COMPRESSION, f"there is no codec {push.codec}"
            )
        if len(push.data) > PUSH_BYTES_MAX:
            raise _too_large(f"{len(push.data)} bytes, at most {PUSH_BYTES_MAX} are allowed")

    def _on_fact(self, fact: AnyFact) -> None:
        if isinstance(fact, ClientMetricsSet):
            self._clients.load(self._catalogue.client_metrics)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _time(self) -> str:
        when = datetime.fromtimestamp(self._clock.wall_ms() / 1000, tz=UTC)
        return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _decoded(push: TelemetryPush) -> PushedMetrics:
    try:
        plain = compression.decompress(push.codec, push.data, limit_bytes=PUSH_PLAIN_BYTES_MAX)
        return decode_metrics(plain, points_max=POINTS_PER_PUSH_MAX)
    except Corrupt as error:
        raise InvalidRequest(ErrorCode.INVALID_RECORD, error.cause) from error
    except InvalidRequest as error:
        raise _too_large(error.cause) from error


def _too_large(cause: str) -> InvalidRequest:
    return InvalidRequest(ErrorCode.TELEMETRY_TOO_LARGE, cause, remedy="send smaller pushes")
