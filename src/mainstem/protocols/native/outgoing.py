"""Words on their way out: all of one turn of the loop leave together."""

from collections.abc import Callable, Sequence

from mainstem.protocols.native.runner import Runner
from mainstem.protocols.session import Sender
from mainstem.wire.native.frames import COUNTED_BYTES, HEAD, LENGTH_BYTES, NONE, frame
from mainstem.wire.native.words import Word, encode

_pack_head = HEAD.pack


class Outgoing:
    """What a session has to say. ``unsent`` tells what its connection has not sent yet."""

    def __init__(self, sender: Sender, runner: Runner, unsent: Callable[[], int]) -> None:
        self._sender = sender
        self._runner = runner
        self._unsent = unsent
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._is_due = False
        self.compression = NONE

    def say(self, number: int, word: Word) -> int:
        """Send one word; how many bytes it takes."""
        return self.say_body(number, encode(word))

    def say_body(self, number: int, body: bytes) -> int:
        """The same of a word that is written already."""
        data = frame(number, body, self.compression)
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if not self._is_due:
            self._is_due = True
            self._runner.soon(self.flush)
        return len(data)

    def say_to_all(self, numbers: Sequence[int], body: bytes) -> None:
        """The same short word as the answer to many."""
        length = COUNTED_BYTES + len(body)
        self._waiting += [_pack_head(length, NONE, number) + body for number in numbers]
        self._waiting_bytes += len(numbers) * (LENGTH_BYTES + length)
        if not self._is_due:
            self._is_due = True
            self._runner.soon(self.flush)

    def unsent_bytes(self) -> int:
        """What the client has not taken yet."""
        return self._waiting_bytes + self._unsent()

    def flush(self) -> None:
        """Send all of it now."""
        self._is_due = False
        if self._waiting:
            waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
            self._sender.send([b"".join(waiting)] if len(waiting) > 1 else waiting)
