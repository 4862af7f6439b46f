"""The context of the route handlers: the broker API, the clock, metrics, and limits."""

import itertools
from collections.abc import Callable, Iterator

from msgspec import Struct, field

from mainstem.broker.api.broker import Broker
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, Unavailable
from mainstem.model.limits import HTTP_BODY_BYTES_MAX, MIB
from mainstem.protocols.rest.access import HttpAuthenticator
from mainstem.protocols.rest.metrics_sampling import MetricsSampler
from mainstem.protocols.rest.window import WindowReader
from mainstem.telemetry.health import Health
from mainstem.telemetry.metrics import Metrics

# Request bodies and large responses in progress, of all connections together.
HELD_BYTES_MAX = 64 * MIB


class NodeDescription(Struct, frozen=True, kw_only=True):
    """What ``/v1/broker`` reports about this node beyond the broker API."""

    version: str
    data_dir: str
    platform: str
    kafka_host: str
    kafka_port: int
    http_host: str
    http_port: int
    storage_threads: int
    segment_bytes: int


class Telemetry(Struct, frozen=True, kw_only=True):
    """Sources of metrics; ``figures`` and ``health`` are computed per request."""

    metrics: Metrics
    figures: MetricsSampler
    health: Callable[[], Health]
    api_name: Callable[[int], str] = str


class BodyBudget:
    """A memory budget shared by requests and responses; a request that exceeds it is refused."""

    def __init__(self, bytes_max: int = HELD_BYTES_MAX) -> None:
        self._left = bytes_max

    def take(self, size: int) -> None:
        """Count ``size`` more bytes, or refuse."""
        if size > self._left:
            raise Unavailable(
                ErrorCode.OVERLOADED,
                "requests and responses in progress use all memory reserved for HTTP",
                remedy="retry later",
            )
        self._left -= size

    def give_back(self, size: int) -> None:
        """Release bytes."""
        self._left += size


class HandlerContext(Struct, frozen=True, kw_only=True):
    """Everything that a route handler may use."""

    broker: Broker
    clock: Clock
    telemetry: Telemetry
    facts: Callable[[], NodeDescription]
    authenticator: HttpAuthenticator | None = None  # None: no authentication, all rights
    body_bytes_max: int = HTTP_BODY_BYTES_MAX
    held: BodyBudget = field(default_factory=BodyBudget)
    peeker: WindowReader = field(default_factory=WindowReader)
    turns: Iterator[int] = field(default_factory=itertools.count)  # spreads keyless messages
