"""Avro as events are written in it, read by another implementation."""

import base64
import io
import json
import math
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.pipelines.cdc.avro import value_types as kinds
from mainstem.pipelines.cdc.avro.columns import mysql_column, postgres_column
from mainstem.pipelines.cdc.avro.events import POSTGRES_SOURCE, in_format, table_schemas
from mainstem.pipelines.cdc.avro.schema import AvroEncoder, canonical_form, fingerprint, named_once
from mainstem.pipelines.cdc.envelope import ChangeRecord, EventField, heartbeat
from mainstem.pipelines.cdc.mysql.settings import MysqlCdcConfig
from mainstem.pipelines.cdc.mysql.values import ColumnType
from mainstem.pipelines.cdc.postgres.settings import PostgresCdcConfig
from mainstem.pipelines.cdc.postgres.values import TypeInfo, as_is
from mainstem.pipelines.file.loader import read_text
from mainstem.pipelines.problems import Problems

POSTGRES = PostgresCdcConfig(database="shop", format="avro")
MYSQL = MysqlCdcConfig(database="shop", format="avro")
PLACEHOLDER = POSTGRES.placeholder


def read(kind: kinds.AvroType, value: Any) -> Any:
    """What a reader makes of a value."""
    stream = io.BytesIO(kind.encode(value))
    schema = fastavro.parse_schema(named_once(kind.schema))
    told = fastavro.schemaless_reader(stream, schema, None)
    assert not stream.read()
    return told


@given(number=st.integers(-(2**63), 2**63 - 1))
def test_a_whole_number_is_read_back(number: int) -> None:
    assert read(kinds.LONG, number) == number


def test_a_number_beyond_63_bits_is_told_as_negative() -> None:
    assert read(kinds.LONG, 2**64 - 1) == -1


@given(text=st.text(), number=st.floats(), raw=st.binary())
def test_text_numbers_and_bytes_are_read_back(text: str, number: float, raw: bytes) -> None:
    assert read(kinds.STRING, text) == text
    again = read(kinds.DOUBLE, number)
    assert again == number or (math.isnan(again) and math.isnan(number))
    for mode, spelt in (
        ("hex", raw.hex()),
        ("base64", base64.b64encode(raw).decode()),
        ("base64-url-safe", base64.urlsafe_b64encode(raw).decode()),
    ):
        assert read(kinds.binary(mode), spelt) == raw


@given(data=st.data(), precision=st.integers(1, kinds.DECIMAL_DIGITS_MAX))
def test_a_decimal_is_read_back(data: st.DataObject, precision: int) -> None:
    scale = data.draw(st.integers(0, precision))
    digits = data.draw(st.integers(-(10**precision) + 1, 10**precision - 1))
    raw = digits.to_bytes(digits.bit_length() // 8 + 1, "big", signed=True)
    told = read(kinds.decimal(precision, scale), base64.b64encode(raw).decode())
    assert (
        told.as_tuple()
        == Decimal((digits < 0, tuple(map(int, str(abs(digits)))), -scale)).as_tuple()
    )


@given(
    values=st.lists(st.none() | st.integers(-5, 5), max_size=40),
    nested=st.lists(st.lists(st.integers()), min_size=1, max_size=3),
)
def test_arrays_are_read_back_and_those_of_arrays_are_text(
    values: list[int | None], nested: list[list[int]]
) -> None:
    kind = postgres_column(TypeInfo("_int4", element=TypeInfo("int4")), POSTGRES)
    assert read(kind, values) == values
    assert json.loads(read(kind, nested)) == nested


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (postgres_column(TypeInfo("bytea"), POSTGRES), PLACEHOLDER, PLACEHOLDER),
        (postgres_column(TypeInfo("text"), POSTGRES), PLACEHOLDER, PLACEHOLDER),
        (postgres_column(TypeInfo("int4"), POSTGRES), None, None),
        (postgres_column(TypeInfo("date"), POSTGRES), 2**31 - 1, 2**31 - 1),
        (postgres_column(TypeInfo("float4"), POSTGRES), -3.4028235e38, -3.4028234663852886e38),
        (mysql_column(ColumnType("bytes"), MYSQL), PLACEHOLDER, None),
        (mysql_column(ColumnType("int"), MYSQL), PLACEHOLDER, None),
        (mysql_column(ColumnType("bit", 1), MYSQL), True, True),
    ],
)
def test_a_column_tells_what_its_type_has_no_room_for(
    kind: kinds.AvroType, value: object, expected: object
) -> None:
    assert read(kind, value) == expected


def test_names_that_avro_does_not_take_are_changed_and_kept_apart() -> None:
    kind = kinds.record("r", [("a b", kinds.INT), ("a-b", kinds.INT), ("1", kinds.STRING)])
    assert read(kind, {"a b": 1, "a-b": 2, "1": "x"}) == {"a_b": 1, "a_b_": 2, "_1": "x"}
    assert [field.get("column") for field in kind.schema["fields"]] == ["a b", "a-b", "1"]


def _fields(*types: str) -> list[EventField]:
    return [
        EventField(f"c{at}", at, as_is, postgres_column(TypeInfo(name), POSTGRES))
        for at, name in enumerate(types)
    ]


def test_a_fingerprint_is_what_others_make_of_the_schema() -> None:
    fields = _fields("int4", "text", "point", "point", "numeric", "bytea")
    schemas = table_schemas(("shop", "public", "t"), fields, fields[:1], POSTGRES_SOURCE)
    assert schemas.key is not None
    for coded in (schemas.key, schemas.value):
        canonical = fastavro.schema.to_parsing_canonical_form(coded.schema)
        assert canonical_form(coded.schema).decode() == canonical
        assert coded.fingerprint.hex() == fastavro.schema.fingerprint(canonical, "CRC-64-AVRO")


def test_a_fingerprint_is_that_of_the_specification() -> None:
    # The empty input gives what the algorithm starts from.
    assert fingerprint(b"") == 0xC15D213AA4D7A795
    assert fingerprint(b'"int"') == 0x7275D51A3F395C8F


def test_another_scale_has_another_fingerprint() -> None:
    one, other = AvroEncoder(kinds.decimal(8, 2)), AvroEncoder(kinds.decimal(8, 3))
    assert one.fingerprint != other.fingerprint


def test_schemas_are_told_once_and_before_they_are_used() -> None:
    fields = _fields("int4", "text")
    schemas = table_schemas(("shop", "public", "t"), fields, fields[:1], POSTGRES_SOURCE)
    gone = ChangeRecord("t", b'{"c0":1}', None, 5, (("__debezium.newkey", b'{"c0":2}'),), schemas)
    told = list(in_format([gone, gone, heartbeat("shop", 7)], POSTGRES))
    assert [each.topic for each in told] == [
        "cdc.shop.schemas", "cdc.shop.schemas", "t", "t",
        "cdc.shop.schemas", "cdc.shop.schemas", None,
    ]  # fmt: skip
    assert schemas.key is not None
    key = told[0]
    assert key.key == schemas.key.fingerprint[::-1].hex().encode()
    assert json.loads(key.value or b"") == schemas.key.schema
    assert told[2].key == b"\xc3\x01" + schemas.key.fingerprint + b"\2\2"
    assert told[2].value is None
    assert told[2].headers == (
        ("__debezium.newkey", b"\xc3\x01" + schemas.key.fingerprint + b"\2\4"),
    )


def test_json_is_left_alone() -> None:
    records = [heartbeat("shop", 7)]
    assert in_format(records, PostgresCdcConfig(database="shop")) is records


@pytest.mark.parametrize("connector", ["postgres-cdc", "mysql-cdc"])
@pytest.mark.parametrize(
    "place",
    [
        "config: {database: d, schema_registry_url: u}",
        "config: {database: d}\n    schema_registry_url: u",
    ],
)
def test_a_schema_registry_is_refused_with_the_reason(connector: str, place: str) -> None:
    text = (
        f"version: '1.0'\nsources:\n  a:\n    connector: {connector}\n    topic: t\n    {place}\n"
    )
    with pytest.raises(Problems) as refused:
        read_text(text, {})
    told = [each for each in refused.value.problems if "registry is not supported" in each.message]
    assert [each.path.rpartition(".")[2] for each in told] == ["schema_registry_url"]
    assert "single-object" in told[0].remedy
