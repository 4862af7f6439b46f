"""What the Kafka listener counts, as plain numbers that are gathered when somebody asks."""

from collections import Counter


class Counters:
    """Requests by API key, and bytes sent to consumers."""

    __slots__ = ("bytes_out", "requests")

    def __init__(self) -> None:
        self.requests: Counter[int] = Counter()
        self.bytes_out = 0
