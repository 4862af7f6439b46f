"""Parses the input of ``produce``: lines to records, ``name=value`` to headers."""

from collections.abc import Sequence
from typing import NamedTuple

from mainstem.cli.errors import UsageFailure

LINE_BYTES_MAX = 64 * 1024 * 1024


class InputRecord(NamedTuple):
    """Key and value of a record to be sent."""

    key: bytes | None
    value: bytes | None


class LineRules(NamedTuple):
    """How a line becomes a record.

    ``null_marker`` stands for "no value": in a compacted topic, such a record deletes its key.
    """

    key_separator: bytes | None = None
    key: bytes | None = None
    null_marker: bytes | None = None


class LineReader:
    """Splits bytes, in pieces of any size, into records."""

    def __init__(self, rules: LineRules) -> None:
        self._rules = rules
        self._rest = b""
        self._number = 0

    def feed(self, piece: bytes) -> list[InputRecord]:
        """The records that are complete now.

        Raises:
            UsageFailure: a line has no key separator, or is too long.
        """
        *whole, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > LINE_BYTES_MAX:
            raise UsageFailure(
                f"line {self._number + len(whole) + 1} is longer than {LINE_BYTES_MAX} bytes",
                remedy="use --whole to send the input as one record",
            )
        return [self._line(text) for text in whole]

    def end(self) -> list[InputRecord]:
        """The last record, when the input did not end in a line end."""
        rest, self._rest = self._rest, b""
        return [self._line(rest)] if rest else []

    def _line(self, text: bytes) -> InputRecord:
        self._number += 1
        return parse(text, self._rules, self._number)


def parse(text: bytes, rules: LineRules, number: int = 1) -> InputRecord:
    """One line without its end."""
    key, value = rules.key, text
    if rules.key_separator is not None:
        key, separator, value = text.partition(rules.key_separator)
        if not separator:
            raise UsageFailure(
                f"line {number} has no {rules.key_separator!r} between key and value",
                subject="--key-separator",
                remedy="omit the option for records without a key",
            )
    if rules.null_marker is not None and value == rules.null_marker:
        return InputRecord(key, None)
    return InputRecord(key, value)


def headers(options: Sequence[str]) -> tuple[tuple[str, bytes | None], ...]:
    """``name=value`` options; a name alone is a header without value.

    Raises:
        UsageFailure: a name is empty.
    """
    found: list[tuple[str, bytes | None]] = []
    for option in options:
        name, equals, value = option.partition("=")
        if not name:
            raise UsageFailure(f"{option!r} has no name", subject="--header", remedy="name=value")
        found.append((name, value.encode() if equals else None))
    return tuple(found)


def separator(text: str) -> bytes:
    r"""A separator as typed in a shell: ``\t`` means a tab."""
    plain = text.encode().decode("unicode_escape") if "\\" in text else text
    if not plain:
        raise UsageFailure("the separator is empty", subject="--key-separator")
    return plain.encode()
