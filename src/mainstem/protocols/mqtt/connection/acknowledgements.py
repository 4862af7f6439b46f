"""Acknowledgements of a connection's messages, in the order in which the messages came.

Pure: a slot is reserved when a message arrives and filled when it is stored. What is filled goes
out as soon as everything before it has.
"""

from collections import deque
from collections.abc import Callable

from mainstem.wire.mqtt.packets import Ack


class Slot:
    """The place of one acknowledgement."""

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
        """A place behind all others."""
        slot = Slot()
        self._slots.append(slot)
        return slot

    def fill(self, slot: Slot, ack: Ack) -> None:
        """An acknowledgement is known; send it, and those behind it, if it is their turn."""
        slot.ack = ack
        slots = self._slots
        while slots and (ready := slots[0].ack) is not None:
            slots.popleft()
            self._send(ready)

    def clear(self) -> None:
        """Nobody waits any more."""
        self._slots.clear()
