"""How ``produce`` understands what it is given: lines to records, ``name=value`` to headers."""

from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple

from mainstem.cli.failure import UsageFailure

LINE_BYTES_MAX = 64 * 1024 * 1024


class Line(NamedTuple):
    """Key and value of one record to be."""

    key: bytes | None
    value: bytes | None


class LineRules(NamedTuple):
    """How a line becomes a record.

    ``null_marker`` stands for "no value": in a compacted topic, such a record deletes its key.
    """

    key_separator: bytes | None = None
    key: bytes | None = None
    null_marker: bytes | None = None


def lines(source: BinaryIO, rules: LineRules) -> Iterator[tuple[Line, int]]:
    """Each record with the number of input bytes it took.

    Raises:
        UsageFailure: a line without the key separator, or one without end.
    """
    number = 0
    while raw := source.readline(LINE_BYTES_MAX + 1):
        number += 1
        if len(raw) > LINE_BYTES_MAX:
            raise UsageFailure(
                f"line {number} is longer than {LINE_BYTES_MAX} bytes",
                remedy="send a file whole with --file-as-record",
            )
        yield parse(raw.removesuffix(b"\n"), rules, number), len(raw)


def parse(text: bytes, rules: LineRules, number: int = 1) -> Line:
    """One line without its end."""
    key, value = rules.key, text
    if rules.key_separator is not None:
        key, separator, value = text.partition(rules.key_separator)
        if not separator:
            raise UsageFailure(
                f"line {number} has no {rules.key_separator!r} between key and value",
                subject="--key-separator",
                remedy="leave the option out for records without a key",
            )
    if rules.null_marker is not None and value == rules.null_marker:
        return Line(key, None)
    return Line(key, value)


def headers(options: Sequence[str]) -> tuple[tuple[str, bytes | None], ...]:
    """``name=value`` options; a name alone is a header without value.

    Raises:
        UsageFailure: an empty name.
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
