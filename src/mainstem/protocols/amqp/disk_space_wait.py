"""Unconfirmed messages of one channel that wait for disk space.

    published ──▶ in flight ──▶ stored
        │             └─ refused: the disk is full ─┐
        └─ there is no space ────────────────────▶ waiting ──▶ published again when there is space

Meanwhile the connection reads nothing, like RabbitMQ during a disk alarm. Guarantee: while the
connection is open no message is lost, and waiting messages are published in their order. Pure.
"""

from collections.abc import Callable, Sequence
from typing import Final

from mainstem.model.limits import MIB
from mainstem.protocols.amqp.channel_link import AmqpService, ChannelLink
from mainstem.protocols.amqp.content_assembly import Content
from mainstem.protocols.amqp.errors import RESOURCE_ERROR, ConnectionRefusal

REASON: Final = "low on disk"
CHECK_MS: Final = 50
AGAIN_BYTES: Final = 1 * MIB
# After a refusal by another node's full disk, this node's free space is no hint when to retry.
RETRY_S: Final = 1.0


class DiskSpaceWait:
    """Buffers unconfirmed messages of a channel until the disk has space.

    Args:
        channel: number of the channel.
        link: the connection that stops reading.
        service: reports whether there is disk space.
        again: publishes the waiting messages, in order.
    """

    def __init__(
        self,
        channel: int,
        link: ChannelLink,
        service: AmqpService,
        again: Callable[[Sequence[Content]], None],
    ) -> None:
        self._channel = channel
        self._link = link
        self._service = service
        self._again = again
        self._in_flight: dict[int, Content] = {}
        self._waiting: dict[int, Content] = {}
        self._waiting_bytes = 0
        self._retried: set[int] = set()  # in flight again after a refusal
        self._not_before_s = 0.0
        self._is_retrying = False
        self._is_checking = False
        self._is_closed = False

    @property
    def is_waiting(self) -> bool:
        """Whether messages wait; later ones have to wait behind them."""
        return bool(self._waiting)

    @property
    def holds(self) -> bool:
        """Whether unstored messages would be lost with the connection."""
        if self._waiting or self._retried:
            return True
        return bool(self._in_flight) and not self._service.has_space()

    def sent(self, token: int, content: Content) -> None:
        """Note an unconfirmed message as in flight."""
        self._in_flight[token] = content
        if self._is_retrying:
            self._retried.add(token)

    def settled(self, tokens: Sequence[int]) -> None:
        """Forget messages that were stored or finally refused."""
        for token in tokens:
            self._in_flight.pop(token, None)
        if self._retried:
            self._retried.difference_update(tokens)

    def refused(self, tokens: Sequence[int]) -> list[int]:
        """Keep unconfirmed messages that were refused for lack of space; returns which are kept."""
        self._not_before_s = self._service.clock.monotonic() + RETRY_S
        held = [token for token in tokens if token in self._in_flight]
        for token in held:
            self.wait(token, self._in_flight.pop(token))
        self._retried.difference_update(held)
        return held

    def wait(self, token: int, content: Content) -> None:
        """Buffer a message until there is space.

        Raises:
            ConnectionRefusal: the node buffers too much.
        """
        self._waiting[token] = content
        self._waiting_bytes += content.size_bytes
        has_memory = self._service.memory.add(content.size_bytes)
        self.block()
        if not has_memory:
            raise ConnectionRefusal(RESOURCE_ERROR, "the disk and the message buffer are full")
        if not self._is_checking:
            self._is_checking = True
            self._link.runner.later(CHECK_MS, self._check)

    def block(self) -> None:
        """Stop reading until there is space and nothing waits."""
        self._link.blocked(REASON, self._is_blocked, (REASON, self._channel))

    def close(self) -> None:
        """Discard all messages: the channel is closed."""
        self._is_closed = True
        self._give_back()
        self._in_flight.clear()
        self._retried.clear()

    def _is_blocked(self) -> bool:
        if self._is_closed:
            return False
        return self.is_waiting or bool(self._retried) or not self._has_space()

    def _has_space(self) -> bool:
        clock = self._service.clock
        return self._service.has_space() and clock.monotonic() >= self._not_before_s

    def _check(self) -> None:
        self._is_checking = False
        if self._is_closed or not self._waiting:
            return
        self._is_checking = True
        self._link.runner.later(CHECK_MS, self._check)
        if self._retried or not self._has_space():
            return
        # In small pieces: there may be space for some of them only.
        found: list[Content] = []
        size = 0
        for token in sorted(self._waiting):
            if size >= AGAIN_BYTES:
                break
            found.append(self._waiting.pop(token))
            size += found[-1].size_bytes
        self._waiting_bytes -= size
        self._service.memory.give_back(size)
        self._is_retrying = True
        try:
            self._again(found)
        finally:
            self._is_retrying = False

    def _give_back(self) -> None:
        self._waiting.clear()
        self._service.memory.give_back(self._waiting_bytes)
        self._waiting_bytes = 0
