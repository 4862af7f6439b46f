"""Messages fetched by single gets, held until the client settles them."""

from collections.abc import Sequence

from mainstem.broker.api.queues import RELEASE, DeliverySource, Settlement
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.limits import DELIVERIES_UNSETTLED_PER_CHANNEL_MAX
from mainstem.protocols.native.convert import wire_delivery
from mainstem.protocols.native.link import NativeConnectionLink, NativeService
from mainstem.security.authorisation.acl import Operation
from mainstem.wire.native.answers import Got
from mainstem.wire.native.requests import Get


class PendingGets:
    """The unsettled gets of one connection, numbered in order."""

    def __init__(self, link: NativeConnectionLink, service: NativeService) -> None:
        self._link = link
        self._service = service
        self._held: dict[int, tuple[DeliverySource, int]] = {}
        self._last = 0
        self._is_closed = False

    async def get(self, word: Get) -> Got:
        """Fetch one message, if one is ready."""
        link = self._link
        link.permissions.queue(Operation.READ, word.queue)
        if len(self._held) >= DELIVERIES_UNSETTLED_PER_CHANNEL_MAX:
            raise InvalidRequest(ErrorCode.LIMIT_REACHED, "too many messages are unsettled")
        delivery, left = await self._service.broker.queues.get(
            link.namespace, word.queue, connection=link.connection, no_ack=word.no_ack
        )
        if delivery is None:
            return Got(left=left)
        self._last += 1
        if not word.no_ack:
            if self._is_closed:
                delivery.source.settle((delivery.number,), RELEASE)
            else:
                self._held[self._last] = (delivery.source, delivery.number)
        self._service.metrics.messages_out += 1
        return Got(delivery=wire_delivery(delivery, self._last), left=left)

    def settle(self, numbers: Sequence[int], how: Settlement) -> None:
        """Settle messages; numbers that are no longer held are ignored."""
        for number in numbers:
            held = self._held.pop(number, None)
            if held is not None:
                held[0].settle((held[1],), how)

    def close(self) -> None:
        """Return all held messages to their position in the queue."""
        self._is_closed = True
        self.settle(list(self._held), RELEASE)
