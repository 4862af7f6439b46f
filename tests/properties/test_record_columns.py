"""Records as columns: both versions agree, on sound batches and on damaged ones."""

from array import array
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.log.cleaning.batch_filter import RawRecord, plain_raw_records
from mainstem.model.errors import Corrupt
from mainstem.model.records import columns, compression, plain_columns
from mainstem.model.records.batch import read_header
from mainstem.model.records.columns import (
    BinaryColumn,
    InputColumn,
    InputHeaders,
    InputRecords,
    PlainBatch,
    RecordColumns,
    decode_columns,
    encode_columns,
    partitions_of_keys,
    plain_batch,
    seal_body,
)
from mainstem.model.records.murmur2 import partition_of_key
from mainstem.model.records.record import (
    Record,
    batches_of,
    build_batch,
    encode_record,
    records_of,
)

native = pytest.importorskip("mainstem.model._native", reason="not compiled on this machine")

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
BLOBS = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=9), BLOBS), max_size=4).map(tuple)
RECORDS = st.lists(
    st.builds(Record, st.just(0), st.integers(-1, 1 << 50), BLOBS, BLOBS, HEADERS),
    min_size=1,
    max_size=30,
)


def outcome(function: Any, *arguments: Any) -> Any:
    """What a function returns, or that it refuses."""
    try:
        return function(*arguments)
    except ValueError:
        return "refused"


def strings(column: BinaryColumn, count: int) -> list[bytes | None]:
    places = memoryview(column.offsets).cast("i")
    found: list[bytes | None] = []
    for row in range(count):
        is_there = column.validity is None or column.validity[row >> 3] >> (row & 7) & 1
        found.append(column.data[places[row] : places[row + 1]] if is_there else None)
    return found


def rows(decoded: RecordColumns) -> list[tuple[Any, ...]]:
    count = decoded.row_count
    headers: list[tuple[tuple[str, bytes | None], ...]] = [()] * count
    if decoded.headers is not None:
        places = memoryview(decoded.headers.offsets).cast("i")
        names = strings(decoded.headers.names, places[count])
        values = strings(decoded.headers.values, places[count])
        pairs = [(str(n, "utf-8"), v) for n, v in zip(names, values, strict=True) if n is not None]
        headers = [tuple(pairs[places[row] : places[row + 1]]) for row in range(count)]
    return list(
        zip(
            memoryview(decoded.offsets).cast("q"),
            memoryview(decoded.timestamps_us).cast("q"),
            strings(decoded.keys, count),
            strings(decoded.values, count),
            headers,
            strict=True,
        )
    )


def column(contents: list[bytes | None], first: int) -> InputColumn:
    """Arrow buffers of a column that begins at ``first``, as slices do."""
    padded = [b"?"] * first + contents
    offsets = array("i", [0])
    bits = bytearray(len(padded) // 8 + 1)
    for place, content in enumerate(padded):
        offsets.append(offsets[-1] + len(content or b""))
        bits[place >> 3] |= (content is not None) << (place & 7)
    data = b"".join(content or b"" for content in padded)
    return InputColumn(bytes(bits), offsets.tobytes(), data, first, len(contents))


def given_records(records: list[Record], first: int) -> InputRecords:
    lists, names, values = array("i", [0] * (first + 1)), [], []
    for record in records:
        names += [name.encode() for name, _ in record.headers]
        values += [value for _, value in record.headers]
        lists.append(len(names))
    return InputRecords(
        column([record.key for record in records], first),
        column([record.value for record in records], first),
        array("q", [record.timestamp for record in records]).tobytes(),
        InputHeaders(
            InputColumn(None, lists.tobytes(), None, first, len(records)),
            column(list(names), 0),
            column(values, 0),
        ),
    )


@settings(deadline=None)
@given(
    batches=st.lists(
        st.tuples(RECORDS, st.integers(0, 1000), st.sampled_from([0, 1, 4]), st.booleans()),
        max_size=4,
    ),
    start=st.integers(0, 2000),
    width=st.integers(0, 2000),
    with_headers=st.booleans(),
)
def test_columns_hold_what_the_records_hold(
    batches: list[tuple[list[Record], int, int, bool]], start: int, width: int, with_headers: bool
) -> None:
    plain, expected = [], []
    base = 0
    for records, gap, codec, append_time in batches:
        base += gap
        data = build_batch(records, codec=codec, flags=8 if append_time else 0)
        data[:8] = base.to_bytes(8, "big")
        plain.append(plain_batch(read_header(data), memoryview(data)))
        base += len(records)
        expected += [
            (
                record.offset,
                record.timestamp * 1000,
                record.key,
                record.value,
                record.headers if with_headers else (),
            )
            for record in records_of(data)
            if start <= record.offset < start + width
        ]
    decoded = decode_columns(plain, start, start + width, with_headers=with_headers)
    assert rows(decoded) == expected
    arguments = (plain, start, start + width, with_headers)
    assert native.decode(*arguments) == plain_columns.decode(*arguments)


@settings(deadline=None)
@given(records=RECORDS, data=st.data())
def test_damaged_bodies_are_refused_by_both_or_read_alike(
    records: list[Record], data: st.DataObject
) -> None:
    body = bytearray()
    for delta, record in enumerate(records):
        encode_record(body, delta, record.timestamp, record)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, max(0, len(body) - 1)))
        new = data.draw(st.sampled_from([b"", b"\xff", b"\x01", b"\x80\x80\x80\x80\x80\x80\x80"]))
        width = data.draw(st.integers(0, 3))
        body[place : place + width] = new
    count = data.draw(st.integers(0, len(records) + 1))
    base = data.draw(st.sampled_from([0, 5, (1 << 63) - 40]))
    time, fixed = data.draw(INT64), data.draw(st.none() | INT64)
    batch = PlainBatch(bytes(body), count, base, time, fixed, base + data.draw(st.integers(0, 39)))
    arguments = ([batch], 0, (1 << 63) - 1, True)
    assert outcome(native.decode, *arguments) == outcome(plain_columns.decode, *arguments)


@settings(deadline=None)
@given(body=st.binary(max_size=60), count=st.integers(-1, 70))
def test_any_bytes_are_refused_by_both_or_read_alike(body: bytes, count: int) -> None:
    arguments = ([PlainBatch(body, max(count, 0), 0, 0, None, 40)], 0, 100, True)
    assert outcome(native.decode, *arguments) == outcome(plain_columns.decode, *arguments)
    header = read_header(build_batch([Record(0, 0, None, None)]))._replace(record_count=count)
    try:
        plain: object = plain_raw_records(body, header)
    except Corrupt:
        plain = "refused"
    assert outcome(native.raw_records, RawRecord, body, count, 0) == plain


@settings(deadline=None)
@given(
    records=RECORDS,
    first=st.integers(0, 20),
    batch_bytes=st.integers(1, 2000),
    order=st.randoms(use_true_random=False),
    stretch=st.booleans(),
)
def test_rows_come_back_from_the_batches_they_were_encoded_into(
    records: list[Record], first: int, batch_bytes: int, order: Any, stretch: bool
) -> None:
    if stretch:
        records = [record._replace(timestamp=order.randrange(1 << 63)) for record in records]
    picked = [order.randrange(len(records)) for _ in records]
    given_columns = given_records(records, first)
    wanted = array("q", picked).tobytes()
    bodies = encode_columns(given_columns, wanted, batch_bytes)
    assert all(len(each.body) <= batch_bytes or each.record_count == 1 for each in bodies)
    found = []
    for body in bodies:
        data = seal_body(body, codec=compression.ZSTD)
        [(header, view)] = batches_of(data)
        assert header.record_count == body.record_count
        found += [record._replace(offset=0) for record in records_of(view)]
    assert found == [records[row] for row in picked]
    arguments = (
        wanted,
        given_columns.keys,
        given_columns.values,
        given_columns.timestamps_ms,
        given_columns.headers,
        batch_bytes,
    )
    assert native.encode(*arguments) == plain_columns.encode(*arguments)


@settings(deadline=None)
@given(
    keys=st.lists(st.integers(-3, 9), max_size=20),
    values=st.integers(0, 5),
    places=st.lists(st.integers(-5, 30), max_size=5),
    junk=st.binary(max_size=64).map(lambda data: data[: len(data) // 4 * 4]),
    first=st.integers(-1, 4),
)
def test_columns_that_make_no_sense_are_refused_by_both(
    keys: list[int], values: int, places: list[int], junk: bytes, first: int
) -> None:
    strange = InputColumn(None, array("i", keys).tobytes(), b"abcdef", first, values)
    stranger = InputColumn(junk, junk, junk, first, len(junk) // 4 - 1)
    wanted = array("q", places).tobytes()
    times = array("q", range(20)).tobytes()
    for column_ in (strange, stranger):
        arguments: tuple[Any, ...] = (wanted, column_, None, times, None, 100)
        assert outcome(native.encode, *arguments) == outcome(plain_columns.encode, *arguments)
        headers = (column_, strange, stranger)
        arguments = (wanted, None, None, times, headers, 100)
        assert outcome(native.encode, *arguments) == outcome(plain_columns.encode, *arguments)
        keyed = (column_, 20, 3)
        assert outcome(native.partitions, *keyed) == outcome(plain_columns.partitions, *keyed)


@settings(deadline=None)
@given(keys=st.lists(BLOBS, max_size=30), first=st.integers(0, 9), count=st.integers(1, 500))
def test_keys_go_where_every_producer_sends_them(
    keys: list[bytes | None], first: int, count: int
) -> None:
    expected = [-1 if key is None else partition_of_key(key, count) for key in keys]
    found = partitions_of_keys(column(keys, first), count)
    assert list(memoryview(found).cast("i")) == expected
    assert plain_columns.partitions(column(keys, first), len(keys), count) == found


def test_the_compiled_version_is_used_where_it_was_built() -> None:
    assert columns.COMPILED is native
