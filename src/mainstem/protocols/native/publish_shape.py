"""Publish frames that differ only in the value: decoded once, then recognised by their bytes.

    head │ before │ value │ after        same before, after and length: the same request

Pure. A client that publishes single messages sends hundreds of such frames. The position of the
value is unambiguous: its bytes occur exactly once in the decoded body.
"""

from typing import Any, Final

from mainstem.protocols.native.convert import has_properties
from mainstem.wire.native.frames import HEAD, HEAD_BYTES, LENGTH_BYTES, NONE
from mainstem.wire.native.requests import Publish

RUN_MAX: Final = 1_000
_VALUE_BYTES_MIN: Final = 8  # shorter values are likely to occur twice

_head_at = HEAD.unpack_from


class PublishShape:
    """What the frames of a run have in common; ``length`` is that of their heads."""

    __slots__ = ("_after", "_before", "length", "word")

    def __init__(self, length: int, before: bytes, after: bytes, word: Publish) -> None:
        self.length = length
        self.word = word
        self._before = before
        self._after = after

    def take(
        self, buf: bytearray, view: memoryview, start: int, until: int
    ) -> tuple[list[int], list[bytes]]:
        """Numbers and values of the frames from ``start`` on that have this shape."""
        length, before, after = self.length, self._before, self._after
        step = LENGTH_BYTES + length
        first, last = HEAD_BYTES + len(before), step - len(after)
        numbers: list[int] = []
        values: list[bytes] = []
        end = start + step
        while end <= until and len(numbers) < RUN_MAX:
            size, flags, number = _head_at(buf, start)
            if (
                size != length
                or flags != NONE
                or not number
                or not buf.startswith(before, start + HEAD_BYTES)
                or not buf.startswith(after, start + last)
            ):
                break
            numbers.append(number)
            values.append(bytes(view[start + first : start + last]))
            start, end = end, end + step
        return numbers, values

    def bytes_of(self, count: int) -> int:
        """The size of ``count`` frames in bytes."""
        return count * (LENGTH_BYTES + self.length)


def shape_of(length: int, body: Any, word: Publish) -> PublishShape | None:
    """The shape of a frame, for recognising similar ones; None if it is not that simple."""
    if len(word.messages) != 1 or word.key is None or word.durability == "none":
        return None
    message = word.messages[0]
    value = message.value
    if value is None or len(value) < _VALUE_BYTES_MIN or message.key is not None:
        return None
    if message.headers or message.timestamp_ms >= 0 or has_properties(message):
        return None
    data = bytes(body)
    at = data.find(value)
    if at < 0 or data.find(value, at + 1) >= 0:
        return None
    return PublishShape(length, data[:at], data[at + len(value) :], word)
