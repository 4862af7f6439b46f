"""Words of one native connection on their way out."""

from collections.abc import Sequence

from mainstem.protocols.send_batch import SendBatch
from mainstem.wire.native.frames import COUNTED_BYTES, HEAD, LENGTH_BYTES, NONE, frame
from mainstem.wire.native.words import Word, encode

_pack_head = HEAD.pack


class NativeOutgoing:
    """Writes words as frames into the batch that leaves at the end of the turn."""

    def __init__(self, batch: SendBatch) -> None:
        self._write = batch.write
        self._write_all = batch.write_all
        self.flush = batch.flush
        self.unsent_bytes = batch.unsent_bytes
        self.compression = NONE

    def send(self, number: int, word: Word) -> int:
        """Send one word; how many bytes it takes."""
        return self._write(frame(number, encode(word), self.compression))

    def send_body(self, number: int, body: bytes) -> int:
        """The same of a word that is written already."""
        return self._write(frame(number, body, self.compression))

    def send_to_all(self, numbers: Sequence[int], body: bytes) -> None:
        """The same short word as the answer to many."""
        length = COUNTED_BYTES + len(body)
        frames = [_pack_head(length, NONE, number) + body for number in numbers]
        self._write_all(frames, len(numbers) * (LENGTH_BYTES + length))
