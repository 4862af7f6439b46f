"""``_native`` in Python: for machines without a compiler, and to test the compiled one.

The functions take and return the same values as the compiled ones, byte for byte. Use them through
``columns``.
"""

from array import array
from collections.abc import Sequence
from typing import Any

from mainstem.model.errors import Corrupt
from mainstem.model.limits import HEADERS_PER_RECORD_MAX
from mainstem.model.records.murmur2 import partition_of_key
from mainstem.model.records.record import read_varint, record_bounds, write_varint

_INT64_MIN = -(1 << 63)
_INT64_MAX = (1 << 63) - 1
_MICROSECONDS = 1_000

Packed = tuple[bytes | None, bytes, bytes]
Given = tuple[Any, Any, Any, int, int]


class _Validity:
    """Validity bits: which rows have a value."""

    def __init__(self) -> None:
        self._bits = bytearray()
        self._count = 0
        self._nulls = 0

    def put(self, is_there: bool) -> None:  # noqa: FBT001
        if self._count % 8 == 0:
            self._bits.append(0)
        if is_there:
            self._bits[-1] |= 1 << (self._count % 8)
        else:
            self._nulls += 1
        self._count += 1

    def close(self) -> bytes | None:
        return bytes(self._bits) if self._nulls else None


class _Strings:
    """A growing column of byte strings."""

    def __init__(self) -> None:
        self.validity = _Validity()
        self.offsets = array("i", [0])
        self.data = bytearray()

    def put(self, content: bytes | None) -> None:
        if content:
            self.data += content
        self.offsets.append(len(self.data))
        self.validity.put(content is not None)

    def close(self) -> Packed:
        return self.validity.close(), self.offsets.tobytes(), bytes(self.data)


class _Decoder:
    """The columns of records between two offsets."""

    def __init__(self, start: int, until: int, *, with_headers: bool) -> None:
        self._start = start
        self._until = until
        self._with_headers = with_headers
        self.offsets = array("q")
        self.timestamps = array("q")
        self.types = array("i")
        self.keys = _Strings()
        self.values = _Strings()
        self.has_headers = _Validity()
        self.header_offsets = array("i", [0])
        self.names = _Strings()
        self.header_values = _Strings()

    def add(self, batch: tuple[bytes, int, int, int, int | None, int]) -> None:
        body, count, base_offset, base_timestamp, fixed, until_offset = batch
        if base_offset < 0 or until_offset < base_offset:
            raise Corrupt("a batch at an impossible offset")
        last = -1
        at = 0
        for _ in range(count):
            at, until = record_bounds(body, at)
            timestamp_delta, at = read_varint(body, at + 1)
            delta, at = read_varint(body, at)
            if not last < delta < until_offset - base_offset:
                raise Corrupt("a record at an impossible offset")
            last = delta
            key, at = _read_field(body, at, until)
            value, at = _read_field(body, at, until)
            headers, at = _read_headers(body, at, until)
            if at != until:
                raise Corrupt("a record is not as long as its fields")
            if not self._start <= base_offset + delta < self._until:
                continue
            self.offsets.append(base_offset + delta)
            time = base_timestamp + timestamp_delta if fixed is None else fixed
            self.timestamps.append(max(_INT64_MIN, min(_INT64_MAX, time * _MICROSECONDS)))
            self.types.append(int(fixed is not None))
            self.keys.put(key)
            self.values.put(value)
            if self._with_headers:
                self._put_headers(headers)
        if at != len(body):
            raise Corrupt("bytes after the last record")

    def _put_headers(self, headers: list[tuple[bytes, bytes | None]]) -> None:
        for name, value in headers:
            self.names.put(name.decode(errors="replace").encode())
            self.header_values.put(value)
        self.header_offsets.append(len(self.names.offsets) - 1)
        self.has_headers.put(bool(headers))


def decode(
    batches: Sequence[tuple[bytes, int, int, int, int | None, int]],
    start: int,
    until: int,
    with_headers: bool,  # noqa: FBT001  # the signature of the compiled function
) -> tuple[Any, ...]:
    """The columns of the records between two offsets; ``ValueError`` if they are malformed."""
    decoder = _Decoder(start, until, with_headers=with_headers)
    try:
        for batch in batches:
            decoder.add(batch)
    except IndexError:
        raise ValueError("a record ends inside a number") from None
    except Corrupt as error:
        raise ValueError(error.cause) from None
    headers = None
    if with_headers:
        headers = (
            decoder.has_headers.close(),
            decoder.header_offsets.tobytes(),
            decoder.names.close(),
            decoder.header_values.close(),
        )
    return (
        len(decoder.offsets),
        decoder.offsets.tobytes(),
        decoder.timestamps.tobytes(),
        decoder.types.tobytes(),
        decoder.keys.close(),
        decoder.values.close(),
        headers,
    )


def encode(  # the signature of the compiled function
    rows: Any,
    keys: Given | None,
    values: Given | None,
    timestamps: Any,
    headers: tuple[Given, Given, Given] | None,
    batch_bytes: int,
) -> list[tuple[bytes, int, int, int]]:
    """The bodies of batches that hold some rows of the columns, in their order."""
    times = memoryview(timestamps).cast("B").cast("q")
    key_of, value_of = _reader(keys), _reader(values)
    headers_of = _HeaderReader(headers)
    batches: list[tuple[bytes, int, int, int]] = []
    body = bytearray()
    count = first = latest = 0
    for row in memoryview(rows).cast("B").cast("q"):
        if not 0 <= row < len(times):
            raise ValueError("a row lies outside its column")
        tail = bytearray()
        _write_field(tail, key_of(row))
        _write_field(tail, value_of(row))
        headers_of.write(tail, row)
        while True:
            if count == 0:
                first = latest = times[row]
            record = bytearray(1)
            write_varint(record, _wrapped(times[row] - first))
            write_varint(record, count)
            record += tail
            framed = bytearray()
            write_varint(framed, len(record))
            framed += record
            if not count or len(body) + len(framed) <= batch_bytes:
                break
            batches.append((bytes(body), count, first, latest))
            body, count = bytearray(), 0
        body += framed
        count += 1
        latest = max(latest, times[row])
    if count:
        batches.append((bytes(body), count, first, latest))
    return batches


def partitions(keys: Given | None, row_count: int, partition_count: int) -> bytes:
    """The partition of every key as 32-bit numbers; -1 where there is no key."""
    key_of = _reader(keys)
    found = array("i")
    for row in range(row_count):
        key = key_of(row)
        found.append(-1 if key is None else partition_of_key(key, partition_count))
    return found.tobytes()


class _Nothing:
    def __call__(self, row: int) -> bytes | None:
        return None


class _Reader:
    """The byte strings of an input column."""

    def __init__(self, given: Given) -> None:
        validity, offsets, data, self._first, self._rows = given
        self._validity = None if validity is None else memoryview(validity).cast("B")
        self._offsets = memoryview(offsets).cast("B").cast("i")
        self._data = memoryview(b"" if data is None else data).cast("B")
        end = self._first + self._rows
        is_short = self._validity is not None and len(self._validity) < (end + 7) // 8
        if min(self._first, self._rows) < 0 or len(self._offsets) < end + 1 or is_short:
            raise ValueError("a column is shorter than its rows")

    def bounds(self, row: int) -> tuple[int, int] | None:
        if not 0 <= row < self._rows:
            raise ValueError("a row lies outside its column")
        row += self._first
        if self._validity is not None and not self._validity[row >> 3] >> (row & 7) & 1:
            return None
        start, until = self._offsets[row], self._offsets[row + 1]
        if not 0 <= start <= until:
            raise ValueError("a row lies outside its column")
        return start, until

    def __call__(self, row: int) -> bytes | None:
        found = self.bounds(row)
        if found is None:
            return None
        if found[1] > len(self._data):
            raise ValueError("a row lies outside its column")
        return bytes(self._data[found[0] : found[1]])


class _HeaderReader:
    """The headers of rows, as they stand in a record."""

    def __init__(self, given: tuple[Given, Given, Given] | None) -> None:
        self._lists = None
        if given is not None:
            self._lists = _Reader(given[0])
            self._name_of, self._value_of = _Reader(given[1]), _Reader(given[2])

    def write(self, out: bytearray, row: int) -> None:
        start, until = (self._lists and self._lists.bounds(row)) or (0, 0)
        write_varint(out, until - start)
        for place in range(start, until):
            name = self._name_of(place)
            if name is None:
                raise ValueError("a row lies outside its column")
            _write_field(out, name)
            _write_field(out, self._value_of(place))


def _reader(given: Given | None) -> _Reader | _Nothing:
    return _Nothing() if given is None else _Reader(given)


def _read_field(body: bytes, at: int, until: int) -> tuple[bytes | None, int]:
    size, at = read_varint(body, at)
    if size < -1:
        raise Corrupt("a field of a negative size")
    if size < 0:
        return None, at
    if at + size > until:
        raise Corrupt("a field is longer than its record")
    return body[at : at + size], at + size


def _read_headers(body: bytes, at: int, until: int) -> tuple[list[tuple[bytes, bytes | None]], int]:
    count, at = read_varint(body, at)
    if not 0 <= count <= HEADERS_PER_RECORD_MAX:
        raise Corrupt("an impossible number of headers")
    headers = []
    for _ in range(count):
        name, at = _read_field(body, at, until)
        if name is None:
            raise Corrupt("a header without a name")
        value, at = _read_field(body, at, until)
        headers.append((name, value))
    return headers, at


def _write_field(out: bytearray, content: bytes | None) -> None:
    write_varint(out, -1 if content is None else len(content))
    out += content or b""


def _wrapped(number: int) -> int:
    """A number wrapped to 64 bits, as the compiled code wraps invalid times."""
    return (number - _INT64_MIN) % (1 << 64) + _INT64_MIN
