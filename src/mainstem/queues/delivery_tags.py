"""Delivery tags of one channel: 1, 2, 3, … over all its queues, settled singly or up to a tag.

A channel may consume from many queues, on many nodes; a tag identifies the queue, the holder and
the delivery number of the holder.
"""

from itertools import takewhile
from typing import NamedTuple

from mainstem.model.errors import ErrorCode, InvalidRequest, Unavailable
from mainstem.model.limits import DELIVERIES_UNSETTLED_PER_CHANNEL_MAX


class Tagged(NamedTuple):
    """The delivery that a tag identifies."""

    queue: int
    holder: str
    number: int


class DeliveryTags:
    """Issues and settles the delivery tags of one channel."""

    def __init__(self) -> None:
        self._tagged: dict[int, Tagged] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._tagged)

    def issue(self, delivery: Tagged, *, is_settled: bool = False) -> int:
        """Issue the tag of a delivery; a settled delivery is not recorded."""
        if len(self._tagged) >= DELIVERIES_UNSETTLED_PER_CHANNEL_MAX:
            raise Unavailable(ErrorCode.OVERLOADED, "too many unsettled deliveries on this channel")
        self._next += 1
        if not is_settled:
            self._tagged[self._next] = delivery
        return self._next

    def take(self, tag: int, *, multiple: bool) -> list[Tagged]:
        """Remove and return the deliveries that a tag settles; 0 with ``multiple`` means all.

        Raises:
            InvalidRequest: the tag was never issued, or is already settled.
        """
        if multiple and tag == 0:
            taken = list(self._tagged)
        elif multiple:
            taken = list(takewhile(lambda each: each <= tag, self._tagged))
        else:
            taken = [tag] if tag in self._tagged else []
        is_known = tag in self._tagged or (multiple and (tag == 0 or bool(taken)))
        if not is_known or tag > self._next:
            raise InvalidRequest(
                ErrorCode.UNKNOWN_DELIVERY, f"unknown delivery tag {tag}", subject=str(tag)
            )
        return [self._tagged.pop(each) for each in taken]

    def lost(self, queue: int, holder: str, number: int) -> None:
        """Remove a delivery whose lease expired: it can no longer be settled."""
        for tag, tagged in self._tagged.items():
            if tagged == (queue, holder, number):
                del self._tagged[tag]
                return

    def forget(self) -> list[Tagged]:
        """Remove and return all deliveries: the channel ends, or uses basic.recover."""
        taken = list(self._tagged.values())
        self._tagged.clear()
        return taken
