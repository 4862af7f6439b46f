"""Every metric of a node, declared once, counted in plain integers.

    metrics.messages_in += batch.record_count          on the path of a message
    exposition.prometheus_text(metrics, sample())      on each scrape

Incrementing an attribute costs tens of nanoseconds and takes no lock, because one loop owns all
state. What must be computed, such as consumer lag, arrives in a ``Sample`` that is taken on each
scrape. This module defines names and meanings; ``exposition`` defines formats.

To add a metric that is a plain number, add one line to ``Metrics`` with its public name and its
meaning; what has labels gets a family of its own in ``exposition``.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal

from msgspec import Struct

API_KEYS_MAX = 128  # Kafka's highest key is below 100; a fixed list is the cheapest table
STATUS_CODES_MAX = 600


class PlainMetric(Struct, frozen=True):
    """Public name and meaning of a metric that is a plain number."""

    name: str
    help: str
    kind: Literal["counter", "gauge"]


def counter(name: str, text: str) -> Any:
    """Declares an attribute that only grows."""
    return field(default=0, metadata={PlainMetric: PlainMetric(name, text, "counter")})


def gauge(name: str, text: str) -> Any:
    """Declares an attribute that goes up and down."""
    return field(default=0, metadata={PlainMetric: PlainMetric(name, text, "gauge")})


# With slots and without a base class: the interpreter's fast path for ``+=`` on an attribute.
@dataclass(slots=True, eq=False)
class Metrics:
    """The counts of one node since its start. Add to the attributes directly.

    ``catalogue_facts_ignored`` belongs to the catalogue, which counts by type of fact.
    """

    catalogue_facts_ignored: Mapping[str, int] = field(default_factory=dict)
    requests: list[int] = field(default_factory=lambda: [0] * API_KEYS_MAX)
    request_errors: list[int] = field(default_factory=lambda: [0] * API_KEYS_MAX)
    http_requests: list[int] = field(default_factory=lambda: [0] * STATUS_CODES_MAX)
    connections: dict[str, int] = field(default_factory=dict)  # open ones, by protocol
    # By protocol and reason.
    connections_refused: Counter[tuple[str, str]] = field(default_factory=Counter)

    messages_in: int = counter("mainstem_broker_messages_in", "Records accepted from producers.")
    bytes_in: int = counter("mainstem_broker_bytes_in", "Bytes of accepted batches.")
    batches_in: int = counter("mainstem_broker_batches_in", "Batches accepted from producers.")
    batches_refused: int = counter(
        "mainstem_broker_batches_refused", "Batches answered with an error."
    )
    messages_out: int = counter("mainstem_broker_messages_out", "Offsets returned to readers.")
    bytes_out: int = counter("mainstem_broker_bytes_out", "Bytes of batches returned to readers.")
    malformed_frames: int = counter(
        "mainstem_kafka_malformed_frames",
        "Frames that could not be decoded and closed their connection.",
    )
    client_pushes: int = counter(
        "mainstem_client_metrics_pushes", "Accepted pushes of clients' own metrics."
    )
    client_push_bytes: int = counter(
        "mainstem_client_metrics_push_bytes",
        "Bytes of accepted pushes of clients' own metrics, as sent.",
    )
    fetches_parked: int = gauge(
        "mainstem_broker_fetches_parked", "Fetches waiting for new records."
    )
    frame_bytes_held: int = gauge(
        "mainstem_frame_memory_bytes", "Received bytes held until their requests can be served."
    )
    frame_memory_refusals: int = counter(
        "mainstem_frame_memory_refusals",
        "Connections closed because the memory for received bytes was used up.",
    )
    connections_active: int = gauge(
        "mainstem_listener_connections_active", "Open client connections."
    )
    connections_accepted: int = counter(
        "mainstem_listener_connections_accepted", "Connections accepted."
    )
    connections_rejected: int = counter(
        "mainstem_listener_connections_rejected",
        "Connections closed at once because a limit was reached.",
    )
    log_syncs: int = counter(
        "mainstem_log_syncs", "Rounds of flushes to disk; one round serves all waiting writers."
    )
    log_sync_seconds: float = counter("mainstem_log_sync_seconds", "Time spent in flushes to disk.")
    log_corruptions: int = counter("mainstem_log_corruptions", "Damaged places found in files.")
    disk_free_bytes: int = gauge(
        "mainstem_disk_free_bytes", "Free space on the file system of the data folder."
    )
    disk_full: int = gauge(
        "mainstem_disk_full", "1 while records are refused because there is no space for them."
    )

    def disk_measured(self, free_bytes: int, *, is_full: bool) -> None:
        """Record the free space of the data folder."""
        self.disk_free_bytes = free_bytes
        self.disk_full = int(is_full)

    def synced(self, seconds: float) -> None:
        """Record one round of flushes to disk."""
        self.log_syncs += 1
        self.log_sync_seconds += seconds


class StreamSample(Struct, frozen=True):
    """One stream at the time of the scrape."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    size_bytes: int


class LagSample(Struct, frozen=True):
    """The lag of one group in one stream."""

    group: str
    topic: str
    partition: int
    committed: int
    lag_records: int
    lag_seconds: float


class QueueSample(Struct, frozen=True):
    """One queue at the time of the scrape."""

    namespace: str
    queue: str
    ready: int
    unsettled: int
    delayed: int
    total_bytes: int
    consumers: int


class Sample(Struct, frozen=True):
    """Values that are computed on each scrape.

    ``queue_counts`` holds the counts of queues since the start, by event and reason ("" for none).
    """

    streams: Sequence[StreamSample] = ()
    lags: Sequence[LagSample] = ()
    groups_by_state: dict[str, int] = {}
    queues: Sequence[QueueSample] = ()
    queue_counts: dict[str, dict[str, int]] = {}
    topics: int = 0
    memory_bytes: int = 0
    uptime_seconds: float = 0.0


PLAIN: Final[dict[str, PlainMetric]] = {
    declared.name: declared.metadata[PlainMetric]
    for declared in fields(Metrics)
    if PlainMetric in declared.metadata
}
"""The metrics that are plain numbers, by attribute, in display order."""
