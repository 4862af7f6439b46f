"""Settings of producers and consumers, with defaults that suit most uses."""

import msgspec


class ProducerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to send. ``idempotent`` is on with acks ``all`` unless set otherwise."""

    acks: int | str = "all"
    linger_ms: float = 5.0
    batch_bytes: int = 64 * 1024
    request_bytes_max: int = 1024 * 1024
    buffer_bytes: int = 32 * 1024 * 1024
    compression: str = "none"
    compression_level: int | None = None
    idempotent: bool | None = None
    in_flight_max: int = 5
    request_timeout_ms: int = 30_000
    retry_pause_ms: int = 100
    delivery_timeout_ms: int = 120_000
    block_timeout_ms: int = 60_000


class ConsumerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to read, and how to behave in a group.

    ``reset`` sets where to start without a committed offset, and where to continue when the offset
    is gone: ``earliest``, ``latest``, or ``none`` for an error. ``isolation`` is
    ``read_uncommitted`` or ``read_committed``.
    """

    reset: str = "latest"
    isolation: str = "read_uncommitted"
    fetch_wait_ms: int = 500
    fetch_bytes_min: int = 1
    fetch_bytes_max: int = 50 * 1024 * 1024
    partition_bytes_max: int = 1024 * 1024
    poll_records_max: int = 500
    auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    poll_interval_ms_max: int = 300_000
    assignors: tuple[str, ...] = ("range", "roundrobin")
    instance_id: str | None = None
    request_timeout_ms: int = 30_000
    api_timeout_ms: int = 60_000
