"""Counters of queues since the start of the node, as plain integers."""

from collections import Counter


class QueueCounts:
    """Counters, incremented directly; ``dropped`` and ``dead_lettered`` are by reason."""

    __slots__ = (
        "acknowledged",
        "dead_lettered",
        "delivered",
        "delivery_ms",
        "dropped",
        "published",
        "redelivered",
        "refused",
        "rejected",
        "returned",
        "unroutable",
    )

    def __init__(self) -> None:
        self.published = 0
        self.refused = 0
        self.unroutable = 0
        self.delivered = 0
        self.delivery_ms = 0  # time from storing to the first delivery, summed over all messages
        self.redelivered = 0
        self.acknowledged = 0
        self.returned = 0
        self.rejected = 0
        self.dropped: Counter[str] = Counter()
        self.dead_lettered: Counter[str] = Counter()
