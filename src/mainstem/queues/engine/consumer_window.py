"""How many deliveries a consumer may have: one concept for all protocols.

AMQP's prefetch and MQTT's receive-maximum limit unsettled deliveries. Link credit of AMQP 1.0 and
the credit of native and gRPC clients is used up by deliveries and granted again. A window has both;
a channel-wide prefetch is a second window that several consumers share.
"""


class ConsumerWindow:
    """Limits the unsettled deliveries of a consumer.

    0 means no limit on unsettled deliveries, None no limit on credit.
    """

    __slots__ = ("bytes_max", "credit", "messages_max", "unsettled", "unsettled_bytes")

    def __init__(
        self, messages_max: int = 0, *, bytes_max: int = 0, credit: int | None = None
    ) -> None:
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.credit = credit
        self.unsettled = 0
        self.unsettled_bytes = 0

    @property
    def is_open(self) -> bool:
        """Whether one more message may be sent.

        Bytes close the window once their limit is reached: a message that is larger than the limit
        is still delivered, alone.
        """
        if self.messages_max and self.unsettled >= self.messages_max:
            return False
        if self.bytes_max and self.unsettled_bytes >= self.bytes_max:
            return False
        return self.credit is None or self.credit > 0

    @property
    def is_limited(self) -> bool:
        """Whether unsettled deliveries are limited."""
        return bool(self.messages_max or self.bytes_max)

    def hold(self) -> None:
        """Close the window until ``let_go``; for windows without credit."""
        self.credit = 0

    def let_go(self) -> None:
        """Open the window again."""
        self.credit = None

    def sent(self, size_bytes: int, *, is_settled: bool) -> None:
        """Count a delivery; one that needs no acknowledgement uses only credit."""
        if self.credit is not None:
            self.credit -= 1
        if not is_settled:
            self.unsettled += 1
            self.unsettled_bytes += size_bytes

    def settled(self, size_bytes: int, messages: int = 1) -> None:
        """Count messages that were settled or taken back."""
        self.unsettled -= messages
        self.unsettled_bytes -= size_bytes
        assert self.unsettled >= 0, "more was settled than sent"
