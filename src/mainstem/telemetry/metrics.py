"""Every metric of a node, declared once, counted in plain integers.

    metrics.messages_in += batch.record_count          on the path of a message
    exposition.prometheus_text(metrics, sample())      when somebody asks

Incrementing an attribute costs tens of nanoseconds and takes no lock, because one loop owns all
state. What must be computed, such as consumer lag, arrives in a ``Sample`` that is taken when
somebody asks. This module knows names and meanings; ``exposition`` knows formats.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

API_KEYS_MAX = 128  # Kafka's highest key is below 100; a fixed list is the cheapest table
STATUS_CODES_MAX = 600


class Metrics:
    """The counts of one node since its start. Add to the attributes directly.

    ``catalogue_facts_ignored`` belongs to the catalogue, which counts by type of fact.
    """

    __slots__ = (
        "batches_in",
        "batches_refused",
        "bytes_in",
        "bytes_out",
        "catalogue_facts_ignored",
        "client_push_bytes",
        "client_pushes",
        "connections",
        "connections_accepted",
        "connections_active",
        "connections_refused",
        "connections_rejected",
        "disk_free_bytes",
        "disk_full",
        "fetches_parked",
        "frame_bytes_held",
        "frame_memory_refusals",
        "http_requests",
        "log_corruptions",
        "log_sync_seconds",
        "log_syncs",
        "malformed_frames",
        "messages_in",
        "messages_out",
        "request_errors",
        "requests",
    )

    def __init__(self, catalogue_facts_ignored: Mapping[str, int] | None = None) -> None:
        self.catalogue_facts_ignored = (
            {} if catalogue_facts_ignored is None else catalogue_facts_ignored
        )
        self.messages_in = 0
        self.bytes_in = 0
        self.batches_in = 0
        self.batches_refused = 0
        self.messages_out = 0
        self.bytes_out = 0
        self.requests = [0] * API_KEYS_MAX
        self.request_errors = [0] * API_KEYS_MAX
        self.malformed_frames = 0
        self.client_pushes = 0
        self.client_push_bytes = 0
        self.fetches_parked = 0
        self.frame_bytes_held = 0
        self.frame_memory_refusals = 0
        self.connections_active = 0
        self.connections_accepted = 0
        self.connections_rejected = 0
        self.connections: dict[str, int] = {}  # open ones, by protocol
        self.connections_refused: Counter[tuple[str, str]] = Counter()  # by protocol and reason
        self.http_requests = [0] * STATUS_CODES_MAX
        self.log_syncs = 0
        self.log_sync_seconds = 0.0
        self.log_corruptions = 0
        self.disk_free_bytes = 0
        self.disk_full = 0

    def disk_measured(self, free_bytes: int, *, is_full: bool) -> None:
        """The free space of the data folder was looked at."""
        self.disk_free_bytes = free_bytes
        self.disk_full = int(is_full)

    def synced(self, seconds: float) -> None:
        """One round of flushes to disk is done."""
        self.log_syncs += 1
        self.log_sync_seconds += seconds


class StreamSample(Struct, frozen=True):
    """One stream at the moment of asking."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    size_bytes: int


class LagSample(Struct, frozen=True):
    """How far one group is behind in one stream."""

    group: str
    topic: str
    partition: int
    committed: int
    lag_records: int
    lag_seconds: float


class QueueSample(Struct, frozen=True):
    """One queue at the moment of asking."""

    namespace: str
    queue: str
    ready: int
    unsettled: int
    delayed: int
    total_bytes: int
    consumers: int


class Sample(Struct, frozen=True):
    """What is computed only when somebody asks.

    ``queue_counts`` holds what queues did since the start, by what it was and why ("" for plain).
    """

    streams: Sequence[StreamSample] = ()
    lags: Sequence[LagSample] = ()
    groups_by_state: dict[str, int] = {}
    queues: Sequence[QueueSample] = ()
    queue_counts: dict[str, dict[str, int]] = {}
    topics: int = 0
    memory_bytes: int = 0
    uptime_seconds: float = 0.0


class Declared(Struct, frozen=True):
    """Name and meaning of one metric that is a plain number."""

    attribute: str
    name: str
    help: str
    kind: str = "counter"


# fmt: off
PLAIN: tuple[Declared, ...] = (
    Declared("messages_in", "mainstem_broker_messages_in", "Records accepted from producers."),
    Declared("bytes_in", "mainstem_broker_bytes_in", "Bytes of accepted batches."),
    Declared("batches_in", "mainstem_broker_batches_in", "Batches accepted from producers."),
    Declared("batches_refused", "mainstem_broker_batches_refused",
             "Batches answered with an error."),
    Declared("messages_out", "mainstem_broker_messages_out", "Offsets handed to readers."),
    Declared("bytes_out", "mainstem_broker_bytes_out", "Bytes of batches handed to readers."),
    Declared("malformed_frames", "mainstem_kafka_malformed_frames",
             "Frames that ended their connection because they could not be understood."),
    Declared("client_pushes", "mainstem_client_metrics_pushes",
             "Pushes of clients' own metrics that were kept."),
    Declared("client_push_bytes", "mainstem_client_metrics_push_bytes",
             "Their bytes, as they were sent."),
    Declared("fetches_parked", "mainstem_broker_fetches_parked",
             "Fetches waiting for new records.", "gauge"),
    Declared("frame_bytes_held", "mainstem_frame_memory_bytes",
             "Received bytes that are kept until they can be served.", "gauge"),
    Declared("frame_memory_refusals", "mainstem_frame_memory_refusals",
             "Connections closed because the memory for received bytes was used up."),
    Declared("connections_active", "mainstem_listener_connections_active",
             "Open client connections.", "gauge"),
    Declared("connections_accepted", "mainstem_listener_connections_accepted",
             "Connections accepted."),
    Declared("connections_rejected", "mainstem_listener_connections_rejected",
             "Connections closed at once because a limit was reached."),
    Declared("log_syncs", "mainstem_log_syncs",
             "Rounds of flushes to disk; one serves all who wait."),
    Declared("log_sync_seconds", "mainstem_log_sync_seconds", "Time spent in flushes to disk."),
    Declared("log_corruptions", "mainstem_log_corruptions", "Damaged places found in files."),
    Declared("disk_free_bytes", "mainstem_disk_free_bytes",
             "Free space on the file system of the data folder.", "gauge"),
    Declared("disk_full", "mainstem_disk_full",
             "1 while records are refused because there is no space for them.", "gauge"),
)
# fmt: on
