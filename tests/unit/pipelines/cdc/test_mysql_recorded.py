"""A log and documents that a real MySQL wrote; MySQL differs from MariaDB in more than names."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.pipelines.cdc.mysql_recorded import DOCUMENTS, EVENTS

from mainstem.model.errors import Corrupt
from mainstem.pipelines.cdc.mysql import binlog as log
from mainstem.pipelines.cdc.mysql.binary_json import double_text, json_text
from mainstem.pipelines.cdc.mysql.binlog_scanner import BinlogScanner
from mainstem.pipelines.cdc.mysql.change_decoder import (
    MysqlCatalogue,
    MysqlChangeDecoder,
    MysqlLogSpan,
)
from mainstem.pipelines.cdc.mysql.gtid import unpacked
from mainstem.pipelines.cdc.mysql.offset import BinlogPosition
from mainstem.pipelines.cdc.mysql.settings import MysqlCdcConfig
from mainstem.pipelines.cdc.mysql.values import _decimal

CONFIG = MysqlCdcConfig(
    database="shop", transaction_metadata=True, schema_changes_topic="ddl", tombstones=False
)
ORIGIN = MysqlCatalogue("mysql", {255: "utf8mb4", 63: "binary", 8: "latin1", 45: "utf8mb4"})
START = MysqlLogSpan(BinlogPosition("mysql-bin.000001", 4), at_ms=5)


def read_decimal(data: bytes, at: int, precision: int, scale: int) -> bytes:
    return _decimal(data, at, precision=precision, scale=scale)[0]


def test_a_log_of_mysql_is_told() -> None:
    decoder = MysqlChangeDecoder(CONFIG, (), ORIGIN, START)

    told = [json.loads(record.value or b"") for event in EVENTS for record in decoder.decode(event)]

    kinds = [each.get("status") or each.get("op") or each["ddl"] for each in told]
    assert kinds == [
        "BEGIN", "c", "u", "END", "BEGIN", "d", "END", "ALTER TABLE t DROP COLUMN p",
    ]  # fmt: skip
    row = told[1]["after"]
    assert (row["id"], row["v"], row["l"]) == (1, "ü", "ä")
    assert row["j"] == '{"a": [1, -2.5]}'
    assert row["p"]["wkb"] == "AQEAAAAAAAAAAADwPwAAAAAAAABA"
    assert told[2]["before"] == row
    assert told[2]["after"] == {**row, "v": "z"}
    assert told[1]["source"]["gtid"] == told[0]["id"]
    assert told[1]["source"]["thread"] is not None


def test_a_walk_knows_the_transactions_that_lie_behind_it() -> None:
    [before] = [unpacked(e[log.HEADER.size :]) for e in EVENTS if e[4] == log.PREVIOUS_GTIDS]
    server, _, numbers = before.partition(":")
    last = int(numbers.rpartition("-")[2])
    walker = BinlogScanner(CONFIG, ORIGIN, START, before)

    ends = []
    for event in EVENTS:
        if walker.passes(event):
            walker.settle()
            ends.append(walker.gtid)

    assert ends[-3:] == [f"{server}:1-{last + n}" for n in (1, 2, 3)]
    assert walker.is_touched


@pytest.mark.parametrize(("document", "expected"), DOCUMENTS)
def test_a_document_is_told_as_the_server_tells_it(document: bytes, expected: str) -> None:
    assert json_text(document, read_decimal).decode() == expected


@given(place=st.integers(0, 7), size=st.integers(0, 60), noise=st.binary(max_size=6))
def test_a_document_that_was_cut_off_is_read_or_corrupt(
    place: int, size: int, noise: bytes
) -> None:
    document = DOCUMENTS[place][0][:size] + noise

    try:
        json_text(document, read_decimal)
    except Corrupt as error:
        assert error.cause  # noqa: PT017


@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_that_was_told_is_itself(value: float) -> None:
    text = double_text(value)

    assert struct.pack("<d", float(text)) == struct.pack("<d", value)
    assert b"." in text or b"e" in text
