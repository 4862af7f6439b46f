"""What queues have done since the node started, in plain integers."""

from collections import Counter


class QueueCounts:
    """Add to the attributes directly; ``dropped`` and ``dead_lettered`` are by reason."""

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
        self.delivery_ms = 0  # from storing to the first delivery, of all messages together
        self.redelivered = 0
        self.acknowledged = 0
        self.returned = 0
        self.rejected = 0
        self.dropped: Counter[str] = Counter()
        self.dead_lettered: Counter[str] = Counter()
