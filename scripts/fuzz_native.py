"""Feeds random and mutated bytes to the native protocol: frames, compressed bodies, words.

Cases are named and repeated as those of ``fuzz_codec``. Clean means: what is read survives another
round trip, everything else raises ``MalformedFrame`` or ``NotAWord``, no case takes long, memory
stays bounded.
"""

import random
import sys
from typing import Any, get_args

import msgspec
from scripts.fuzz_codec import Unclean, main, mutate

from mainstem.wire.native.answers import Answer, read_answer
from mainstem.wire.native.frames import (
    HEAD,
    HEAD_BYTES,
    MalformedFrame,
    check_length,
    frame,
    plain_body,
)
from mainstem.wire.native.requests import Request, read_request
from mainstem.wire.native.words import NotAWord, encode

LIMIT_BYTES = 1 << 20
DEPTH_MAX = 3
SIDES = ((get_args(Request), read_request), (get_args(Answer), read_answer))


class NativeFuzzer:
    """Runs cases by index."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._chance = random.Random()  # noqa: S311 - cases must be repeatable
        self.outcomes = {"accepted": 0, "refused": 0}

    def run(self, index: int) -> None:
        """Runs one case."""
        chance = self._chance
        chance.seed(self.seed << 64 | index)
        words, read = chance.choice(SIDES)
        body = _body(chance, words)
        compression = chance.randrange(3)
        if chance.random() < 0.4:
            body = mutate(body, chance)
        data = frame(chance.randrange(1 << 32), body, compression)
        if chance.random() < 0.4:
            data = mutate(data, chance)
        try:
            word = read(self._plain(data, compression))
        except (MalformedFrame, NotAWord):
            self.outcomes["refused"] += 1
            return
        self.outcomes["accepted"] += 1
        once = encode(word)
        if encode(read(once)) != once:
            raise Unclean(f"{word!r} changes in a round trip")

    @staticmethod
    def _plain(data: bytes, compression: int) -> Any:
        if len(data) < HEAD_BYTES:
            raise MalformedFrame("no head")
        length, flags, _ = HEAD.unpack_from(data)
        check_length(length, LIMIT_BYTES)
        plain = plain_body(flags, memoryview(data)[HEAD_BYTES:], compression, LIMIT_BYTES)
        if len(plain) > LIMIT_BYTES:
            raise Unclean(f"{len(plain)} bytes came out, beyond the limit")
        return plain


def _body(chance: random.Random, words: tuple[Any, ...]) -> bytes:
    """A map that looks like a word: its fields, most with values that fit."""
    kind = chance.choice(words)
    fields = {"type": kind.__struct_config__.tag}
    for field in msgspec.structs.fields(kind):
        if field.required or chance.random() < 0.5:
            fields[field.encode_name] = _fitting(chance, field.type, 0)
    return msgspec.msgpack.encode(fields)


def _fitting(chance: random.Random, wanted: Any, depth: int) -> Any:
    """Mostly a valid value for a field, sometimes any value."""
    if chance.random() < 0.05 or depth > DEPTH_MAX:
        return _anything(chance)
    text = str(wanted)
    if hasattr(wanted, "__struct_fields__"):
        return {
            field.encode_name: _fitting(chance, field.type, depth + 1)
            for field in msgspec.structs.fields(wanted)
            if field.required or chance.random() < 0.3
        }
    if "list[" in text:
        inner = [
            each for each in get_args(get_args(wanted)[0] if get_args(wanted) else wanted) if each
        ]
        return [
            _fitting(chance, inner[0], depth + 1) if inner else _anything(chance)
            for _ in range(chance.randrange(4))
        ]
    return _plain_value(chance, text)


def _plain_value(chance: random.Random, text: str) -> Any:
    if "dict[" in text:
        return {"a": chance.choice([b"x", None, "y"])}
    if "bytes" in text:
        return chance.randbytes(chance.randrange(2_000))
    if "bool" in text:
        return chance.random() < 0.5
    if "int" in text or "float" in text:
        return chance.choice([0, 1, 7, 100, 2**31, 2**53, 2**63 - 1])
    return chance.choice(["", "a", "committed", "direct", "größe", "x" * 300])


def _anything(chance: random.Random) -> Any:
    return chance.choice(
        [None, True, -1, 2**64 - 1, 1.5, "", "text", b"", b"\xff" * 9, [], [[[]]], {}, {"a": {}}]
    )


if __name__ == "__main__":
    sys.exit(main(NativeFuzzer))
