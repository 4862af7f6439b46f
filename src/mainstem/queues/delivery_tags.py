"""Delivery tags of one channel: 1, 2, 3, … over all its queues, settled one by one or up to one.

A channel may consume from many queues, on many nodes; a tag leads back to the queue, the holder and
the number of the delivery there.
"""

from itertools import takewhile
from typing import NamedTuple

from mainstem.model.errors import ErrorCode, InvalidRequest, Unavailable
from mainstem.model.limits import DELIVERIES_UNSETTLED_PER_CHANNEL_MAX


class Tagged(NamedTuple):
    """Which delivery a tag stands for."""

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
        """The tag of a delivery that is about to go out; one that is settled is not remembered."""
        if len(self._tagged) >= DELIVERIES_UNSETTLED_PER_CHANNEL_MAX:
            raise Unavailable(
                ErrorCode.OVERLOADED, "too many deliveries of this channel are unsettled"
            )
        self._next += 1
        if not is_settled:
            self._tagged[self._next] = delivery
        return self._next

    def take(self, tag: int, *, multiple: bool) -> list[Tagged]:
        """The deliveries that are settled with a tag; 0 with ``multiple`` is all of them.

        Raises:
            InvalidRequest: the tag was never issued, or is settled.
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
        """A lease ran out: the delivery can no longer be settled."""
        for tag, tagged in self._tagged.items():
            if tagged == (queue, holder, number):
                del self._tagged[tag]
                return

    def forget(self) -> list[Tagged]:
        """The channel ends, or asks for everything back (basic.recover)."""
        taken = list(self._tagged.values())
        self._tagged.clear()
        return taken
