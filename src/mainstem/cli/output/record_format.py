r"""How ``consume`` prints a record: a format string with kcat's letters.

    %t topic   %p partition   %o offset      %T timestamp in ms
    %k key     %K its length  %s value       %S its length   %h headers   %% a percent sign

``\n``, ``\t``, ``\r``, ``\0`` and ``\\`` are escapes. Keys and values are written as their raw
bytes.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from mainstem.cli.errors import UsageFailure

if TYPE_CHECKING:
    from mainstem.client.values import ConsumerRecord

DEFAULT_FORMAT = r"%s\n"

Part = Callable[["ConsumerRecord"], bytes]

_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def _headers(record: "ConsumerRecord") -> bytes:
    return b",".join(
        name.encode() + b"=" + (value if value is not None else b"NULL")
        for name, value in record.headers
    )


def _length(content: bytes | None) -> bytes:
    return b"-1" if content is None else str(len(content)).encode()


_LETTERS: dict[str, Part] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: str(record.partition).encode(),
    "o": lambda record: str(record.offset).encode(),
    "T": lambda record: str(record.timestamp).encode(),
    "k": lambda record: record.key or b"",
    "K": lambda record: _length(record.key),
    "s": lambda record: record.value or b"",
    "S": lambda record: _length(record.value),
    "h": _headers,
    "%": lambda _: b"%",
}


def compile_format(text: str) -> Callable[["ConsumerRecord"], bytes]:
    """A function from a record to the bytes to print.

    Raises:
        UsageFailure: a letter is unknown.
    """
    parts: list[bytes | Part] = []
    literal = bytearray()
    characters = iter(text)
    for character in characters:
        if character == "%":
            letter = next(characters, "")
            if letter not in _LETTERS:
                raise UsageFailure(
                    f"%{letter} is unknown",
                    subject="--format",
                    remedy=f"use one of {' '.join('%' + known for known in _LETTERS)}",
                )
            parts += [bytes(literal), _LETTERS[letter]]
            literal.clear()
        elif character == "\\":
            letter = next(characters, "\\")
            literal += _ESCAPES.get(letter, b"\\" + letter.encode())
        else:
            literal += character.encode()
    parts.append(bytes(literal))
    return lambda record: b"".join(p if isinstance(p, bytes) else p(record) for p in parts)


def as_document(record: "ConsumerRecord") -> dict[str, object]:
    """The record for JSON and YAML: text where the bytes are text, base64 beside it otherwise."""
    document: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    document |= _content("key", record.key) | _content("value", record.value)
    document["headers"] = [
        {"name": name} | _content("value", value) for name, value in record.headers
    ]
    return document


def _content(name: str, content: bytes | None) -> dict[str, object]:
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        from base64 import b64encode

        return {f"{name}_base64": b64encode(content).decode()}
