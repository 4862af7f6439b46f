"""Metrics in two formats: Prometheus text and JSON.

The Prometheus library is imported at the first scrape, because a node should start without it. The
number of series is bounded: a node with very many partitions reports the largest ones.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from mainstem.telemetry.metrics import PLAIN, LagSample, Metrics, Sample, StreamSample
from mainstem.telemetry.queue_exposition import queue_families, queue_summary

if TYPE_CHECKING:
    from prometheus_client.core import Metric

PARTITION_SERIES_MAX = 20_000
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

ApiName = Callable[[int], str]


def prometheus_text(metrics: Metrics, sample: Sample, api_name: ApiName = str) -> bytes:
    """Everything in Prometheus' text format."""
    from prometheus_client.exposition import generate_latest
    from prometheus_client.registry import CollectorRegistry

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(metrics, sample, api_name))
    return generate_latest(registry)


def json_summary(metrics: Metrics, sample: Sample) -> dict[str, object]:
    """The main figures, as a JSON summary in snake case."""
    return {
        "total_messages_published": metrics.messages_in,
        "total_messages_delivered": metrics.messages_out,
        "total_bytes_published": metrics.bytes_in,
        "total_bytes_delivered": metrics.bytes_out,
        "total_batches_published": metrics.batches_in,
        "total_batches_refused": metrics.batches_refused,
        "total_requests": sum(metrics.requests),
        "total_errors": sum(metrics.request_errors) + metrics.malformed_frames,
        "total_connections_accepted": metrics.connections_accepted,
        "total_connections_rejected": metrics.connections_rejected,
        "active_connections": metrics.connections_active,
        "parked_fetches": metrics.fetches_parked,
        "topic_count": sample.topics,
        "partition_count": len(sample.streams),
        "group_count": sum(sample.groups_by_state.values()),
        "total_consumer_lag": sum(lag.lag_records for lag in sample.lags),
        "total_disk_syncs": metrics.log_syncs,
        "average_disk_sync_ms": _mean_ms(metrics.log_sync_seconds, metrics.log_syncs),
        "log_size_bytes": sum(stream.size_bytes for stream in sample.streams),
        "memory_usage_mb": round(sample.memory_bytes / 2**20, 1),
        "uptime_seconds": round(sample.uptime_seconds, 3),
        **queue_summary(sample),
    }


def _mean_ms(total_seconds: float, count: int) -> float:
    return round(total_seconds / count * 1000, 3) if count else 0.0


class _Collected:
    """One scrape, as a collector of the Prometheus library."""

    def __init__(self, metrics: Metrics, sample: Sample, api_name: ApiName) -> None:
        self._metrics = metrics
        self._sample = sample
        self._api_name = api_name

    def collect(self) -> Iterator["Metric"]:
        """Every family of this scrape."""
        yield from self._plain()
        yield from self._by_api()
        yield from self._http()
        yield from self._connections()
        yield from self._catalogue()
        yield from self._node()
        yield from _streams(self._sample.streams)
        yield from _lags(self._sample.lags)
        yield from queue_families(self._sample)

    def _plain(self) -> Iterator["Metric"]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for attribute, declared in PLAIN.items():
            value = getattr(self._metrics, attribute)
            family = GaugeMetricFamily if declared.kind == "gauge" else CounterMetricFamily
            yield family(declared.name, declared.help, value=value)

    def _by_api(self) -> Iterator["Metric"]:
        from prometheus_client.core import CounterMetricFamily

        for name, text, counts in (
            ("mainstem_kafka_requests", "Requests by API.", self._metrics.requests),
            (
                "mainstem_kafka_request_errors",
                "Requests that could not be answered and closed their connection, by API.",
                self._metrics.request_errors,
            ),
        ):
            family = CounterMetricFamily(name, text, labels=["api"])
            for api_key, count in enumerate(counts):
                if count:
                    family.add_metric([self._api_name(api_key)], count)
            yield family

    def _http(self) -> Iterator["Metric"]:
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(
            "mainstem_http_requests", "HTTP requests by status.", labels=["status"]
        )
        for status, count in enumerate(self._metrics.http_requests):
            if count:
                family.add_metric([str(status)], count)
        yield family

    def _connections(self) -> Iterator["Metric"]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        held = GaugeMetricFamily(
            "mainstem_connections", "Open client connections by protocol.", labels=["protocol"]
        )
        for protocol, count in sorted(self._metrics.connections.items()):
            held.add_metric([protocol], count)
        yield held
        refused = CounterMetricFamily(
            "mainstem_connections_refused",
            "Connections closed at once because a limit was reached.",
            labels=["protocol", "reason"],
        )
        for (protocol, reason), count in sorted(self._metrics.connections_refused.items()):
            refused.add_metric([protocol, reason], count)
        yield refused

    def _catalogue(self) -> Iterator["Metric"]:
        from prometheus_client.core import CounterMetricFamily

        family = CounterMetricFamily(
            "mainstem_catalogue_facts_ignored",
            "Recorded facts that no longer applied when they were replayed, by type.",
            labels=["fact"],
        )
        for fact, count in sorted(self._metrics.catalogue_facts_ignored.items()):
            family.add_metric([fact], count)
        yield family

    def _node(self) -> Iterator["Metric"]:
        from prometheus_client.core import GaugeMetricFamily

        sample = self._sample
        yield GaugeMetricFamily("mainstem_node_topics", "Topics.", value=sample.topics)
        yield GaugeMetricFamily(
            "mainstem_node_memory_bytes", "Resident memory.", value=sample.memory_bytes
        )
        yield GaugeMetricFamily(
            "mainstem_node_uptime_seconds", "Time since start.", value=sample.uptime_seconds
        )
        groups = GaugeMetricFamily("mainstem_groups", "Groups by state.", labels=["state"])
        for state, count in sorted(sample.groups_by_state.items()):
            groups.add_metric([state], count)
        yield groups


def _streams(streams: Iterable[StreamSample]) -> Iterator["Metric"]:
    from prometheus_client.core import GaugeMetricFamily

    labels = ["topic", "partition"]
    start = GaugeMetricFamily("mainstem_stream_start_offset", "First offset.", labels=labels)
    end = GaugeMetricFamily(
        "mainstem_stream_end_offset", "Offset after the last committed record.", labels=labels
    )
    size = GaugeMetricFamily("mainstem_stream_size_bytes", "Bytes on disk.", labels=labels)
    largest = sorted(streams, key=lambda stream: stream.size_bytes, reverse=True)
    for stream in largest[:PARTITION_SERIES_MAX]:
        values = [stream.topic, str(stream.partition)]
        start.add_metric(values, stream.start_offset)
        end.add_metric(values, stream.end_offset)
        size.add_metric(values, stream.size_bytes)
    yield from (start, end, size)


def _lags(lags: Iterable[LagSample]) -> Iterator["Metric"]:
    from prometheus_client.core import GaugeMetricFamily

    labels = ["group", "topic", "partition"]
    committed = GaugeMetricFamily(
        "mainstem_group_committed_offset", "Offset that the group committed.", labels=labels
    )
    records = GaugeMetricFamily(
        "mainstem_group_lag_records", "Records from the committed offset to the end.", labels=labels
    )
    seconds = GaugeMetricFamily(
        "mainstem_group_lag_seconds", "Age of the next record to be read.", labels=labels
    )
    largest = sorted(lags, key=lambda lag: lag.lag_records, reverse=True)
    for lag in largest[:PARTITION_SERIES_MAX]:
        values = [lag.group, lag.topic, str(lag.partition)]
        committed.add_metric(values, lag.committed)
        records.add_metric(values, lag.lag_records)
        seconds.add_metric(values, lag.lag_seconds)
    yield from (committed, records, seconds)
