"""Which tables and columns are captured, how they are masked, and their topics. Pure."""

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import partial

import msgspec

from mainstem.pipelines.connector.shapes import TableRoute

Convert = Callable[[bytes], bytes]

REDACTED = b'"**********"'
_TRUNCATE = re.compile(r"truncate:(\d{1,9})")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a dotted name matches one of the patterns; ``*`` and ``?`` are wildcards."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def is_selected(schema: str, table: str, tables: Sequence[str], excluded: Sequence[str]) -> bool:
    """Whether a table is captured; without a list, every table of ``public`` is."""
    name = f"{schema}.{table}"
    return matches(name, tables or ("public.*",)) and not matches(name, excluded)


def kept_columns(
    table: str, columns: Sequence[str], include: Sequence[str], exclude: Sequence[str]
) -> frozenset[str]:
    """The captured columns of ``schema.table``, without regard to keys."""
    return frozenset(
        name
        for name in columns
        if (not include or matches(f"{table}.{name}", include))
        and not matches(f"{table}.{name}", exclude)
    )


def mask_for(name: str, masks: dict[str, str], salt: str) -> Convert | None:
    """The mask of the column ``schema.table.column``; None if it is not masked."""
    for pattern, mode in masks.items():
        if fnmatchcase(name, pattern):
            return mask(mode, salt)
    return None


def null_for(name: str, masks: dict[str, str]) -> bytes:
    """The text for null in a column: redacted ones hide even nulls."""
    for pattern, mode in masks.items():
        if fnmatchcase(name, pattern):
            return REDACTED if mode == "redact" else b"null"
    return b"null"


def mask(mode: str, salt: str) -> Convert:
    """The mask of a configured mode.

    Raises:
        ValueError: the mode is unknown.
    """
    if mode == "hash":
        return partial(_hashed, salt=salt.encode())
    if mode == "redact":
        return lambda value: REDACTED
    if found := _TRUNCATE.fullmatch(mode):
        length = int(found[1])
        return lambda value: msgspec.json.encode(value.decode()[:length])
    raise ValueError(f"{mode!r} is not a mask: use hash, redact or truncate:N")


def _hashed(value: bytes, salt: bytes) -> bytes:
    return b'"%b"' % hashlib.sha256(salt + value).hexdigest().encode()


class TableRouting:
    """The topic of each table: its own route, or the template, made a valid topic name."""

    def __init__(
        self, pattern: str, *, database: str, name: str, routes: Sequence[TableRoute] = ()
    ) -> None:
        self._pattern = pattern
        self._database = database
        self._name = name
        self._routes = {(route.schema, route.table): route.topic for route in routes}

    def topic(self, schema: str, table: str) -> str:
        """The topic of a table."""
        routed = self._routes.get((schema, table)) or self._routes.get((None, table))
        if routed is not None:
            return routed
        filled = self._pattern.format(
            database=self._database, schema=schema, table=table, name=self._name
        )
        return _UNSAFE.sub("_", filled)
