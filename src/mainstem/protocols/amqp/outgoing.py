"""Frames on their way out: all of one turn of the loop leave together."""

from collections.abc import Callable

from mainstem.protocols.amqp.link import Runner
from mainstem.protocols.session import Sender
from mainstem.wire.amqp.frames import method_frame
from mainstem.wire.amqp.method import Method


class Outgoing:
    """What a session has to say. ``unsent`` tells what its connection has not sent yet."""

    def __init__(self, sender: Sender, runner: Runner, unsent: Callable[[], int]) -> None:
        self._sender = sender
        self._runner = runner
        self._unsent = unsent
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._is_due = False
        self.has_spoken = False  # since somebody last asked

    def write(self, data: bytes) -> None:
        """Send whole frames."""
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if not self._is_due:
            self._is_due = True
            self._runner.soon(self.flush)

    def method(self, channel: int, method: Method) -> None:
        """Send a method."""
        self.write(method_frame(channel, method))

    def unsent_bytes(self) -> int:
        """What the client has not taken yet."""
        return self._waiting_bytes + self._unsent()

    def flush(self) -> None:
        """Send all of it now."""
        self._is_due = False
        if self._waiting:
            waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
            self.has_spoken = True
            self._sender.send([b"".join(waiting)] if len(waiting) > 1 else waiting)
