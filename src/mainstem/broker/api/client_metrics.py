"""The part of the broker API that collects metrics of clients (KIP-714)."""

from typing import Protocol

from msgspec import Struct

NO_INSTANCE = bytes(16)


class MetricsClient(Struct, frozen=True):
    """What is known of a client that may be asked for its metrics."""

    client_id: str
    software_name: str
    software_version: str
    address: str
    port: int
    user: str


class MetricsSubscription(Struct, frozen=True):
    """What a client is asked for. ``metrics`` are prefixes of names; empty: nothing."""

    instance: bytes
    id: int
    interval_ms: int
    metrics: tuple[str, ...]
    push_bytes_max: int
    codecs: tuple[int, ...]


class TelemetryPush(Struct, frozen=True):
    """What a client says that it has measured."""

    instance: bytes
    subscription_id: int
    terminating: bool
    codec: int
    data: bytes


class ClientMetrics(Protocol):
    """Subscriptions are settings, see ``topics``; this is what becomes of them."""

    def subscription(self, instance: bytes, client: MetricsClient) -> MetricsSubscription:
        """What a client is asked for; a client without an instance id is given one."""
        ...

    def push(self, push: TelemetryPush, client: MetricsClient) -> None:
        """Keep what a client has measured where operators see it."""
        ...
