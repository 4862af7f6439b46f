"""When a load generator sends, decided before it starts.

Latency is measured from the moment a message *should* have been sent. A generator that measures
from the moment of sending pauses together with a slow broker and misses the wait (coordinated
omission).
"""

NANOSECONDS = 1_000_000_000


class SendSchedule:
    """The moments, in nanoseconds, at which messages are due.

    Args:
        start_ns: when the first one is due.
        rate: messages per second; None sends as fast as possible, each due when it is sent.
    """

    __slots__ = ("_rate", "_start_ns")

    def __init__(self, start_ns: int, rate: float | None) -> None:
        assert rate is None or rate > 0, "a rate is positive"
        self._start_ns = start_ns
        self._rate = rate

    def due_ns(self, index: int, now_ns: int) -> int:
        """When message ``index`` should be sent; now, without a rate."""
        if self._rate is None:
            return now_ns
        return self._start_ns + round(index * NANOSECONDS / self._rate)

    def wait_ns(self, index: int, now_ns: int) -> int:
        """How long to wait before message ``index``; 0 when it is due or overdue."""
        return max(0, self.due_ns(index, now_ns) - now_ns)
