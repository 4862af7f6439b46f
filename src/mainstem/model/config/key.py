"""What a setting is: name, type, default, bounds, and how its text becomes a value.

Settings are sent as text, as by Kafka clients. A key turns text into a value or refuses it
with the key, the value and what is allowed; the error for an unknown name suggests the
nearest known one. Topic keys have *synonyms*: the node-level names that supply their default.
"""

from collections.abc import Iterable
from difflib import get_close_matches

from msgspec import Struct

from mainstem.model.errors import ErrorCode, InvalidRequest

INT_MAX = 2**31 - 1
INT_MIN = -(2**31)
LONG_MAX = 2**63 - 1
LONG_MIN = -(2**63)

BOOLEAN, STRING, INT, LONG, DOUBLE, LIST = "boolean", "string", "int", "long", "double", "list"

Value = bool | str | int | float | tuple[str, ...]

VALUE_LENGTH_MAX = 1_000
"""No setting needs a longer text; accepted texts are stored and listed."""
NAME_LENGTH_MAX = 200
"""Longer names are not compared with the known ones, which takes time, nor quoted in full."""

_NUMBER_BOUNDS = {INT: (INT_MIN, INT_MAX), LONG: (LONG_MIN, LONG_MAX)}


class Synonym(Struct, frozen=True):
    """A node-level name for a topic setting; its unit may be coarser by ``factor``."""

    name: str
    factor: int = 1


class ConfigKey(Struct, frozen=True, kw_only=True):
    """One setting. ``default`` is text in the same form that a client would send."""

    name: str
    type: str
    default: str | None
    documentation: str
    synonyms: tuple[Synonym, ...] = ()
    at_least: float | None = None
    at_most: float | None = None
    stored_at_least: float | None = None  # what earlier releases allowed: stored values stay valid
    also: tuple[int, ...] = ()  # values outside the bounds with a special meaning
    one_of: tuple[str, ...] = ()
    read_only: bool = False
    nullable: bool = False  # listed without a value where there is none

    def parse(self, text: str, *, stored: bool = False) -> Value:
        """The typed value of ``text``, which may have been ``stored`` under older bounds.

        Raises:
            InvalidRequest: the text is not a value of this key.
        """
        if len(text) > VALUE_LENGTH_MAX:
            raise self._refusal(text)
        if self.type == BOOLEAN:
            return self._parse_boolean(text)
        if self.type == LIST:
            return self._parse_list(text)
        if self.type == STRING:
            if self.one_of and text not in self.one_of:
                raise self._refusal(text)
            return text
        return self._parse_number(text.strip(), stored=stored)

    def allowed(self) -> str:
        """A description of the allowed values."""
        if self.one_of:
            words = ", ".join(self.one_of)
            return f"a comma separated list of: {words}" if self.type == LIST else words
        if self.type == BOOLEAN:
            return "true, false"
        if self.type not in (INT, LONG, DOUBLE):
            return "text"
        lower = "" if self.at_least is None else f"{self.at_least:.15g}"
        upper = "" if self.at_most is None else f"{self.at_most:.15g}"
        phrase = f"{self.type} [{lower}..{upper}]" if lower or upper else self.type
        return " or ".join([phrase, *(str(value) for value in self.also)])

    def _parse_boolean(self, text: str) -> bool:
        word = text.strip().lower()
        if word not in ("true", "false"):
            raise self._refusal(text)
        return word == "true"

    def _parse_list(self, text: str) -> tuple[str, ...]:
        if not text.strip():
            return ()
        words = [word.strip() for word in text.split(",")]
        if not all(words) or (self.one_of and not set(words) <= set(self.one_of)):
            raise self._refusal(text)
        return tuple(dict.fromkeys(words))

    def _parse_number(self, text: str, *, stored: bool) -> int | float:
        # int() alone would also accept "1_000" and digits of other scripts.
        plain = text.isascii() and "_" not in text
        try:
            number: int | float = float(text) if self.type == DOUBLE else int(text)
        except ValueError:
            plain = False
            number = 0
        lower, upper = _NUMBER_BOUNDS.get(self.type, (float("-inf"), float("inf")))
        if not plain or not lower <= number <= upper or number in (float("inf"), float("-inf")):
            raise self._refusal(text)
        if number in self.also:
            return number
        old = stored and self.stored_at_least is not None
        at_least = self.stored_at_least if old else self.at_least
        if at_least is not None and number < at_least:
            raise self._refusal(text)
        if self.at_most is not None and number > self.at_most:
            if stored:  # a later upper bound caps values that were stored before
                return type(number)(self.at_most)
            raise self._refusal(text)
        return number

    def _refusal(self, text: str) -> InvalidRequest:
        return InvalidRequest(
            ErrorCode.INVALID_CONFIG,
            f"invalid value {_short(text)!r} for {self.name}",
            subject=self.name,
            remedy=f"allowed: {self.allowed()}",
        )


def unknown_key(name: str, known: Iterable[str], kind: str = "") -> InvalidRequest:
    """The refusal of an unknown setting, with the nearest known name."""
    short = _short(name)
    near = get_close_matches(name, list(known), n=1) if short == name else []
    return InvalidRequest(
        ErrorCode.INVALID_CONFIG,
        f"unknown {kind} config name {short!r}" if kind else f"unknown config name {short!r}",
        subject=short,
        remedy=f"did you mean {near[0]!r}?" if near else "",
    )


def _short(text: str) -> str:
    return text if len(text) <= NAME_LENGTH_MAX else text[:NAME_LENGTH_MAX] + "…"
