"""Feeds random and mutated bytes to AMQP's codec: methods, field tables, properties.

Cases are named and repeated as those of ``fuzz_codec``. Clean means: what is read survives another
round trip, everything else raises ``Malformed``, no case takes long, memory stays bounded, and what
stands before and behind a payload in a buffer is never read.
"""

import random
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from scripts.fuzz_codec import Unclean, main, mutate

from mainstem.wire.amqp.fields import Malformed, Timestamp, read_table, table_bytes
from mainstem.wire.amqp.method_codec import METHODS, decode_method, encode_method
from mainstem.wire.amqp.properties import Properties, decode_properties, encode_properties

NUMBERS = sorted(METHODS)
DEPTH_MAX = 4
Decode = Callable[[bytes, int, int], Any]
Encode = Callable[[Any], bytes]


class AmqpFuzzer:
    """Runs cases by index."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._chance = random.Random()  # noqa: S311 - cases must be repeatable
        self.outcomes = {"accepted": 0, "refused": 0}

    def run(self, index: int) -> None:
        """Runs one case."""
        chance = self._chance
        chance.seed(self.seed << 64 | index)
        draw = chance.random()
        if draw < 0.5:
            self._case(_method(chance), decode_method, encode_method)
        elif draw < 0.8:
            self._case(encode_properties(_properties(chance)), decode_properties, encode_properties)
        else:
            self._case(table_bytes(_table(chance, 0)), _whole_table, table_bytes)

    def _case(self, valid: bytes, decode: Decode, encode: Encode) -> None:
        chance = self._chance
        data = chance.randbytes(chance.randrange(64)) if chance.random() < 0.1 else valid
        if chance.random() < 0.9:
            data = mutate(data, chance)
        buffer = b"\x01\x02\x03" + data + b"\x04" * chance.randrange(40)
        try:
            found = decode(buffer, 3, 3 + len(data))
            once = encode(found)
        except Malformed:
            self.outcomes["refused"] += 1
            return
        self.outcomes["accepted"] += 1
        twice = encode(decode(once, 0, len(once)))
        if once != twice:
            raise Unclean(f"{found!r} changes in a round trip")


def _whole_table(buf: bytes, start: int, until: int) -> Any:
    return read_table(buf, start, until)[0]


def _method(chance: random.Random) -> bytes:
    kind = METHODS[chance.choice(NUMBERS)]
    values: dict[str, Any] = {}
    for name in kind.__struct_fields__:
        usual = getattr(kind(), name)
        if isinstance(usual, bool):
            values[name] = chance.random() < 0.5
        elif isinstance(usual, int):
            values[name] = chance.randrange(256)
        elif isinstance(usual, str):
            values[name] = _text(chance)
        elif isinstance(usual, bytes):
            values[name] = chance.randbytes(chance.randrange(20))
        else:
            values[name] = _table(chance, 0)
    return encode_method(kind(**values))


def _properties(chance: random.Random) -> Properties:
    found = Properties()
    for name in Properties.__struct_fields__:
        if chance.random() < 0.5:
            continue
        if name == "headers":
            found.headers = _table(chance, 0)
        elif name in ("delivery_mode", "priority"):
            setattr(found, name, chance.randrange(256))
        elif name == "timestamp":
            found.timestamp = Timestamp(chance.randrange(1 << 64))
        else:
            setattr(found, name, _text(chance))
    return found


def _table(chance: random.Random, depth: int) -> dict[str, Any]:
    return {_text(chance): _value(chance, depth) for _ in range(chance.randrange(4))}


def _value(chance: random.Random, depth: int) -> Any:
    draw = chance.randrange(10 if depth < DEPTH_MAX else 8)
    plain: list[Any] = [
        None,
        chance.random() < 0.5,
        chance.randrange(-(1 << 63), 1 << 63),
        chance.random(),
        _text(chance),
        chance.randbytes(chance.randrange(12)),
        Timestamp(chance.randrange(1 << 64)),
        Decimal(chance.randrange(-1000, 1000)).scaleb(-chance.randrange(5)),
    ]
    if draw < len(plain):
        return plain[draw]
    if draw == len(plain):
        return _table(chance, depth + 1)
    return [_value(chance, depth + 1) for _ in range(chance.randrange(4))]


def _text(chance: random.Random) -> str:
    return "".join(
        chr(chance.choice((65, 97, 228, 0x4E2D, 46))) for _ in range(chance.randrange(9))
    )


if __name__ == "__main__":
    sys.exit(main(AmqpFuzzer))
