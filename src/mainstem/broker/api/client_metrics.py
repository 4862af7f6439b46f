"""The part of the broker API that collects metrics of clients (KIP-714)."""

from typing import Protocol

from msgspec import Struct

NO_INSTANCE = bytes(16)


class MetricsClient(Struct, frozen=True):
    """A client that may be asked for its metrics, as subscriptions match it."""

    client_id: str
    software_name: str
    software_version: str
    address: str
    port: int
    user: str


class MetricsSubscription(Struct, frozen=True):
    """The subscription of a client. ``metrics`` are prefixes of names; empty: nothing."""

    instance: bytes
    id: int
    interval_ms: int
    metrics: tuple[str, ...]
    push_bytes_max: int
    codecs: tuple[int, ...]


class TelemetryPush(Struct, frozen=True):
    """One push of a client's metrics."""

    instance: bytes
    subscription_id: int
    terminating: bool
    codec: int
    data: bytes


class ClientMetrics(Protocol):
    """Serves subscriptions and takes pushes; subscriptions are settings, see ``topics``."""

    def subscription(self, instance: bytes, client: MetricsClient) -> MetricsSubscription:
        """The subscription of a client; a client without an instance id is given one."""
        ...

    def push(self, push: TelemetryPush, client: MetricsClient) -> None:
        """Write the metrics that a client pushed."""
        ...
