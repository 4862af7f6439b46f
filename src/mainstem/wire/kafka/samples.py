"""Generates random valid messages of a plan, for property tests, the fuzzer and benchmarks.

The random source is passed in (such as ``random.Random``), so a seed determines the message.
"""

from typing import Any, Protocol

from mainstem.wire.kafka.schema import FieldPlan, StructPlan

INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
}
TEXTS = ("", "a", "orders", "ключ", "名", "x" * 126, "y" * 127, "z" * 128, "w" * 300)
ELEMENTS_MAX = 3


class Chance(Protocol):
    """The part of ``random.Random`` that is used."""

    def random(self) -> float:
        """A number in [0, 1)."""

    def randint(self, a: int, b: int, /) -> int:
        """An integer in [a, b]."""

    def randbytes(self, n: int, /) -> bytes:
        """So many bytes."""


def draw_message(plan: StructPlan, chance: Chance) -> Any:
    """A message with random values in the fields of this version and defaults in all others."""
    return plan.cls(
        **{field.name: _draw(field, chance) for field in plan.fields if field.is_present}
    )


def _draw(field: FieldPlan, chance: Chance) -> Any:
    if field.is_nullable and chance.random() < 0.2:
        return None
    if field.is_array:
        return [_draw_one(field, chance) for _ in range(chance.randint(0, ELEMENTS_MAX))]
    return _draw_one(field, chance)


def _draw_one(field: FieldPlan, chance: Chance) -> Any:
    if field.nested is not None:
        return draw_message(field.nested, chance)
    if field.kind in INTEGERS:
        low, high = INTEGERS[field.kind]
        return (low, high, 0, 1, chance.randint(low, high))[chance.randint(0, 4)]
    if field.kind == "bool":
        return chance.random() < 0.5
    if field.kind == "float64":
        return chance.random() * 1e6
    if field.kind == "string":
        return TEXTS[chance.randint(0, len(TEXTS) - 1)]
    return chance.randbytes(16 if field.kind == "uuid" else chance.randint(0, 200))
