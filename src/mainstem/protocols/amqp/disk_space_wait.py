"""Messages of one channel that nobody confirms and that the disk had no space for.

    published ──▶ in flight ──▶ stored
        │             └─ refused: the disk is full ─┐
        └─ there is no space ────────────────────▶ waiting ──▶ published again when there is space

Meanwhile the connection reads no more, as RabbitMQ's does at a disk alarm. Promise: as long as the
connection lasts nothing is lost, and what waited is published in the order in which it came. Pure.
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
# Where another node's disk is full, this one's says nothing about when to try again.
RETRY_S: Final = 1.0


class DiskSpaceWait:
    """Holds unconfirmed messages of a channel until the disk has space.

    Args:
        channel: whose messages they are.
        link: the connection that reads no more.
        service: says whether there is space.
        again: publishes what waited, in order.
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
        self._retried: set[int] = set()  # in flight for another time
        self._not_before_s = 0.0
        self._is_retrying = False
        self._is_checking = False
        self._is_closed = False

    @property
    def is_waiting(self) -> bool:
        """Whether messages wait, so that later ones have to come behind them."""
        return bool(self._waiting)

    @property
    def holds(self) -> bool:
        """Whether messages are not stored, and would be lost with the connection."""
        if self._waiting or self._retried:
            return True
        return bool(self._in_flight) and not self._service.has_space()

    def sent(self, token: int, content: Content) -> None:
        """A message is in flight that nobody confirms."""
        self._in_flight[token] = content
        if self._is_retrying:
            self._retried.add(token)

    def settled(self, tokens: Sequence[int]) -> None:
        """They are stored, or refused for good."""
        for token in tokens:
            self._in_flight.pop(token, None)
        if self._retried:
            self._retried.difference_update(tokens)

    def refused(self, tokens: Sequence[int]) -> list[int]:
        """There was no space for them; which of them wait, the others are their publisher's."""
        self._not_before_s = self._service.clock.monotonic() + RETRY_S
        held = [token for token in tokens if token in self._in_flight]
        for token in held:
            self.wait(token, self._in_flight.pop(token))
        self._retried.difference_update(held)
        return held

    def wait(self, token: int, content: Content) -> None:
        """Keep a message until there is space.

        Raises:
            ConnectionRefusal: the node keeps too much.
        """
        self._waiting[token] = content
        self._waiting_bytes += content.size_bytes
        has_memory = self._service.memory.add(content.size_bytes)
        self.block()
        if not has_memory:
            raise ConnectionRefusal(RESOURCE_ERROR, "the disk is full, and memory is used up")
        if not self._is_checking:
            self._is_checking = True
            self._link.runner.later(CHECK_MS, self._check)

    def block(self) -> None:
        """Read no more until there is space and nothing waits."""
        self._link.blocked(REASON, self._is_blocked, (REASON, self._channel))

    def close(self) -> None:
        """The channel ends."""
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
        # A little at a time: there may be space for some of it and not for all.
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
