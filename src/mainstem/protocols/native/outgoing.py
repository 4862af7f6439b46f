"""Outgoing messages of one native connection."""

from collections.abc import Sequence

from mainstem.protocols.send_batch import SendBatch
from mainstem.wire.native.frames import COUNTED_BYTES, HEAD, LENGTH_BYTES, NONE, frame
from mainstem.wire.native.words import Word, encode

_pack_head = HEAD.pack


class NativeOutgoing:
    """Encodes messages as frames into the batch that is sent at the end of the loop iteration."""

    def __init__(self, batch: SendBatch) -> None:
        self._write = batch.write
        self._write_all = batch.write_all
        self.flush = batch.flush
        self.unsent_bytes = batch.unsent_bytes
        self.compression = NONE

    def send(self, number: int, word: Word) -> int:
        """Send one message; returns its size in bytes."""
        return self._write(frame(number, encode(word), self.compression))

    def send_body(self, number: int, body: bytes) -> int:
        """Send an encoded message; returns its size in bytes."""
        return self._write(frame(number, body, self.compression))

    def send_to_all(self, numbers: Sequence[int], body: bytes) -> None:
        """Send the same short message as the response to many requests."""
        length = COUNTED_BYTES + len(body)
        frames = [_pack_head(length, NONE, number) + body for number in numbers]
        self._write_all(frames, len(numbers) * (LENGTH_BYTES + length))
