"""Events of a binary log, from bytes put together here, to values and records."""

import struct
import zlib

import pytest

from mainstem.model.errors import Corrupt, InvalidRequest
from mainstem.pipelines.cdc.mysql import binlog as log
from mainstem.pipelines.cdc.mysql.change_decoder import (
    MysqlCatalogue,
    MysqlChangeDecoder,
    MysqlLogSpan,
)
from mainstem.pipelines.cdc.mysql.offset import BinlogPosition
from mainstem.pipelines.cdc.mysql.settings import MysqlCdcConfig

CONFIG = MysqlCdcConfig(database="shop")
ORIGIN = MysqlCatalogue("mariadb", {45: "utf8mb4", 63: "binary", 8: "latin1"})


def event(kind: int, body: bytes, end: int = 100) -> bytes:
    size = log.HEADER.size + len(body)
    return log.HEADER.pack(1_700_000_000, kind, 1, size, end, 0) + body


def field(kind: int, value: bytes) -> bytes:
    return bytes([kind, len(value)]) + value


def described(number: int = 7, *, named: bool = True) -> bytes:
    """A table shop.t (id INT UNSIGNED PRIMARY KEY, v VARCHAR(10) in latin1)."""
    body = number.to_bytes(6, "little") + b"\1\0" + b"\4shop\0" + b"\1t\0"
    body += bytes([2, log.LONG, log.VARCHAR]) + b"\2" + b"\x0a\0" + b"\2"
    if named:
        body += field(1, b"\x80") + field(2, b"\x08") + field(4, b"\2id\1v") + field(8, b"\0")
    return event(log.TABLE_MAP, body)


def inserted(number: int = 7, rows: bytes = b"\0\xff\xff\xff\xff\3a\xe4b") -> bytes:
    return event(23, number.to_bytes(6, "little") + b"\1\0" + b"\2\3" + rows)


def decoder(config: MysqlCdcConfig = CONFIG) -> MysqlChangeDecoder:
    return MysqlChangeDecoder(
        config, (), ORIGIN, MysqlLogSpan(BinlogPosition("log.000001", 4), at_ms=5)
    )


def test_a_table_is_known_from_its_description() -> None:
    table = log.table_map(described())

    assert (table.database, table.name, table.key) == ("shop", "t", ("id",))
    [key, value] = table.columns
    assert (key.name, key.kind, key.unsigned) == ("id", log.LONG, True)
    assert (value.name, value.kind, value.meta, value.charset) == ("v", log.VARCHAR, (0, 10), 8)


def test_rows_are_told_with_the_signs_and_character_sets_of_their_table() -> None:
    told = decoder()
    list(told.decode(described()))

    [record] = told.decode(inserted())

    assert record.key == b'{"id":4294967295}'
    assert '"after":{"id":4294967295,"v":"aäb"}'.encode() in (record.value or b"")
    assert told.spot == BinlogPosition("log.000001", 100)


def test_a_log_without_names_of_columns_is_refused_with_the_remedy() -> None:
    with pytest.raises(InvalidRequest) as refused:
        list(decoder().decode(described(named=False)))

    assert "binlog_row_metadata = FULL" in refused.value.remedy


@pytest.mark.parametrize("kind", [26, 38, 39, 40, 165, 166, 171])
def test_events_that_would_hide_changes_are_refused(kind: int) -> None:
    with pytest.raises(InvalidRequest):
        list(decoder().decode(event(kind, b"\0" * 40)))


def test_rows_of_a_table_that_was_never_described_are_corrupt() -> None:
    with pytest.raises(Corrupt, match="no table map event"):
        list(decoder().decode(inserted()))


def test_a_row_that_is_longer_than_its_event_is_corrupt() -> None:
    told = decoder()
    list(told.decode(described()))

    with pytest.raises(Corrupt, match="exceeds"):
        list(told.decode(inserted(rows=b"\0\xff\xff\xff\xff\x09ab")))


def test_checksums_are_taken_off_and_looked_at() -> None:
    bare = event(log.XID, b"12345678")
    whole = bare + zlib.crc32(bare).to_bytes(4, "little")
    checksums = log.Checksums(is_on=True)

    assert checksums.bare(whole) == bare
    with pytest.raises(Corrupt, match="checksum"):
        checksums.bare(whole[:-5] + b"\0" + whole[-4:])
    first_of_file = event(log.FORMAT, b"\0" * 60 + b"\0" + b"\0" * 4)
    checksums.bare(first_of_file)  # says that its file has none
    assert checksums.bare(bare) == bare


def test_a_transaction_is_open_from_its_name_to_its_end() -> None:
    told = decoder()
    seen = []
    for data in (
        event(log.MARIADB_GTID, struct.pack("<QIB", 9, 0, 0) + b"\0" * 6, end=10),
        described(),
        inserted(),
        event(log.XID, b"\0" * 8, end=200),
        event(log.MARIADB_GTID, struct.pack("<QIB", 10, 0, 1) + b"\0" * 6, end=210),
        event(log.QUERY, struct.pack("<IIBHH", 1, 0, 4, 0, 0) + b"shop\0DROP TABLE t", end=300),
        event(log.ROTATE, struct.pack("<Q", 4) + b"log.000002", end=0),
    ):
        list(told.decode(data))
        seen.append(told.is_between)

    assert seen == [False, False, False, True, False, True, True]
    assert told.spot == BinlogPosition("log.000002", 4)


def test_spots_are_in_the_order_of_their_files_numbers() -> None:
    places = [
        BinlogPosition("log.999999", 9),
        BinlogPosition("log.1000000", 4),
        BinlogPosition("log.1000000", 5),
    ]

    assert sorted(places, key=lambda spot: spot.order) == places


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"\xfa", 250), (b"\xfc\x01\x02", 0x201), (b"\xfd\1\0\1", 0x10001), (b"\xfe" + b"\1" * 8, 1)],
)
def test_lengths_have_one_three_four_or_nine_bytes(data: bytes, expected: int) -> None:
    number, at = log.length(data, 0)

    assert at == len(data)
    assert number == (int.from_bytes(b"\1" * 8, "little") if expected == 1 else expected)
