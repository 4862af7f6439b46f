"""Acknowledgements of a connection's messages, sent in the order in which the messages arrived.

Pure: a slot is reserved when a message arrives and filled when it is stored. A filled slot is sent
as soon as all slots before it are sent.
"""

from collections import deque
from collections.abc import Callable

from mainstem.wire.mqtt.packets import Ack


class Slot:
    """The position of one acknowledgement in the order."""

    __slots__ = ("ack",)

    def __init__(self) -> None:
        self.ack: Ack | None = None


class Answers:
    """Sends acknowledgements in the order in which messages arrived."""

    def __init__(self, send: Callable[[Ack], None]) -> None:
        self._send = send
        self._slots: deque[Slot] = deque()

    def __len__(self) -> int:
        return len(self._slots)

    def reserve(self) -> Slot:
        """Reserve a slot behind all others."""
        slot = Slot()
        self._slots.append(slot)
        return slot

    def fill(self, slot: Slot, ack: Ack) -> None:
        """Fill a slot; send it, and filled slots behind it, if it is the first."""
        slot.ack = ack
        slots = self._slots
        while slots and (ready := slots[0].ack) is not None:
            slots.popleft()
            self._send(ready)

    def clear(self) -> None:
        """Discard all slots: the connection is closed."""
        self._slots.clear()
