"""Metrics of queues, in Prometheus' families and in the JSON summary.

The number of series is bounded: a node with very many queues reports the fullest ones.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mainstem.telemetry.metrics import Sample

if TYPE_CHECKING:
    from prometheus_client.core import Metric

QUEUE_SERIES_MAX = 10_000

_COUNTED = {
    "published": "Messages published to exchanges and queues.",
    "refused": "Messages refused: a queue was full, memory short, the disk failed.",
    "unroutable": "Messages that reached no queue.",
    "delivered": "Messages handed to consumers.",
    "redelivered": "Messages handed out that somebody had before.",
    "acknowledged": "Messages that consumers acknowledged.",
    "returned": "Messages that consumers gave back.",
    "rejected": "Messages that consumers rejected.",
    "delivery_ms": "Milliseconds from storing to the first delivery, of all messages together.",
}
_BY_REASON = {
    "dropped": "Messages that left without having been acknowledged, by reason.",
    "dead_lettered": "Dead letters that were stored, by reason.",
}
_GAUGES = {
    "ready": "Messages that a consumer could have now.",
    "unsettled": "Messages that somebody has in hand.",
    "delayed": "Messages that wait for their time.",
    "total_bytes": "Bytes of all messages.",
    "consumers": "Consumers.",
}


def queue_families(sample: Sample) -> Iterator["Metric"]:
    """Every family that is about queues."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415

    for name, text in _COUNTED.items():
        value = sample.queue_counts.get(name, {}).get("", 0)
        yield CounterMetricFamily(f"mainstem_queues_messages_{name}", text, value=value)
    for name, text in _BY_REASON.items():
        family = CounterMetricFamily(f"mainstem_queues_messages_{name}", text, labels=["reason"])
        for reason, count in sorted(sample.queue_counts.get(name, {}).items()):
            family.add_metric([reason], count)
        yield family
    fullest = sorted(sample.queues, key=lambda queue: queue.ready, reverse=True)
    for name, text in _GAUGES.items():
        gauge = GaugeMetricFamily(f"mainstem_queue_{name}", text, labels=["namespace", "queue"])
        for queue in fullest[:QUEUE_SERIES_MAX]:
            gauge.add_metric([queue.namespace, queue.queue], getattr(queue, name))
        yield gauge


def queue_summary(sample: Sample) -> dict[str, object]:
    """The figures about queues that a person looks for first."""
    plain = {name: sample.queue_counts.get(name, {}).get("", 0) for name in _COUNTED}
    return {
        "queue_count": len(sample.queues),
        "queued_messages": sum(queue.ready for queue in sample.queues),
        "in_flight_messages": sum(queue.unsettled for queue in sample.queues),
        "total_messages_queued": plain["published"],
        "total_messages_acknowledged": plain["acknowledged"],
        "total_retries": plain["redelivered"],
        "average_delivery_latency_ms": _mean(
            plain["delivery_ms"], plain["delivered"] - plain["redelivered"]
        ),
        "total_messages_refused": plain["refused"],
        "total_dead_lettered": sum(sample.queue_counts.get("dead_lettered", {}).values()),
        "total_messages_dropped": sum(sample.queue_counts.get("dropped", {}).values()),
    }


def _mean(total: int, count: int) -> float:
    return round(total / count, 3) if count > 0 else 0.0
