"""Names of fields inside a record: ``status``, ``customer.address.city``, ``items[0].sku``.

A dot or a bracket goes one level down. A name that contains such characters itself is written in
brackets and quotes: ``['user.id']``, ``address['post code']``. The first level is always a field.
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple

_NAME: Final = re.compile(r"[^.\[\]'\"]+")
_QUOTED: Final = re.compile(r"\['([^']+)'\]|\[\"([^\"]+)\"\]")
_INDEX: Final = re.compile(r"\[(\d{1,9})\]")
PATH_CHARACTERS_MAX: Final = 1000


class FieldPath(NamedTuple):
    """A field: its name on the first level, and the path below it, if any."""

    top: str
    rest: str | None
    """The rest in the syntax of Spark's variant functions, such as ``$['address']['city']``."""


@lru_cache(maxsize=4096)
def parse_path(text: str) -> FieldPath:
    """Parses the name of a field.

    Raises:
        ValueError: it is invalid; the message contains the reason.
    """
    if not text or len(text) > PATH_CHARACTERS_MAX:
        raise ValueError(f"a field name has 1 to {PATH_CHARACTERS_MAX} characters")
    steps: list[str | int] = []
    position = 0
    while position < len(text):
        step, position = _step(text, position, first=not steps)
        steps.append(step)
    top, *below = steps
    if not isinstance(top, str):
        raise ValueError(f"{text!r} starts with a number in brackets; records are objects")  # noqa: TRY004
    rest = "".join(f"[{step}]" if isinstance(step, int) else _bracket(step) for step in below)
    return FieldPath(top, f"${rest}" if rest else None)


def is_path(text: str) -> bool:
    """Whether a text can be the name of a field."""
    try:
        parse_path(text)
    except ValueError:
        return False
    return True


def _step(text: str, position: int, *, first: bool) -> tuple[str | int, int]:
    if found := _INDEX.match(text, position):
        return int(found[1]), found.end()
    if found := _QUOTED.match(text, position):
        return found[1] or found[2], found.end()
    if not first and text[position] == ".":
        position += 1
    elif not first:
        raise ValueError(f"{text!r}: a dot or a bracket is missing before {text[position:]!r}")
    if found := _NAME.match(text, position):
        return found[0], found.end()
    raise ValueError(f"{text!r} is not a field name at {text[position:]!r}; quote it: ['odd.name']")


def _bracket(name: str) -> str:
    return f'["{name}"]' if "'" in name else f"['{name}']"
