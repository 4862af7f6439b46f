"""Records on their way between a scenario and a client driver: one JSON line each.

Every driver, whatever its language, reads and writes this form, so that contents and not counts
are compared. A line is ``[partition, offset, timestamp_ms, key, value, [[name, value], ...]]`` with
bytes in base64 and absent things as null.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Record:
    """What a client sent or received."""

    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int | None = None
    offset: int | None = None

    @property
    def content(self) -> tuple[bytes | None, bytes | None, Headers]:
        """The part of a record that must come back as it was sent."""
        return self.key, self.value, self.headers


def encode(record: Record) -> str:
    """One line of a record file, without the line end."""
    headers = [[name, _text(value)] for name, value in record.headers]
    fields = [record.partition, record.offset, record.timestamp_ms]
    return json.dumps([*fields, _text(record.key), _text(record.value), headers])


def decode(line: str) -> Record:
    """The record of one line."""
    partition, offset, timestamp_ms, key, value, headers = json.loads(line)
    return Record(
        key=_bytes(key),
        value=_bytes(value),
        headers=tuple((name, _bytes(content)) for name, content in headers),
        timestamp_ms=timestamp_ms,
        partition=partition,
        offset=offset,
    )


def write_file(path: Path, records: Iterable[Record]) -> None:
    """Replace ``path`` by the records."""
    with path.open("w") as file:
        for record in records:
            file.write(encode(record) + "\n")


def read_file(path: Path) -> Iterator[Record]:
    """The records of ``path``; a last line that is still being written is left out."""
    with path.open() as file:
        for line in file:
            if line.endswith("\n"):
                yield decode(line)


def _text(content: bytes | None) -> str | None:
    return None if content is None else b64encode(content).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)
