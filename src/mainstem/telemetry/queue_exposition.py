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
    "refused": "Messages refused: a queue was full, memory was short or the disk failed.",
    "unroutable": "Messages that were routed to no queue.",
    "delivered": "Messages delivered to consumers.",
    "redelivered": "Messages delivered again after an earlier delivery.",
    "acknowledged": "Messages that consumers acknowledged.",
    "returned": "Messages that consumers returned to the queue.",
    "rejected": "Messages that consumers rejected.",
    "delivery_ms": "Sum of the milliseconds from storing to the first delivery, over all messages.",
}
_BY_REASON = {
    "dropped": "Messages removed without an acknowledgement, by reason.",
    "dead_lettered": "Dead letters stored, by reason.",
}
_GAUGES = {
    "ready": "Messages ready for delivery.",
    "unsettled": "Messages delivered and not settled yet.",
    "delayed": "Messages with a delay that has not passed yet.",
    "total_bytes": "Bytes of all messages.",
    "consumers": "Consumers.",
}


def queue_families(sample: Sample) -> Iterator["Metric"]:
    """Every metric family of queues."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

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
    """The main figures of queues, for the JSON summary."""
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
