"""Which tables and columns are told, what hides them, and where they go."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.pipelines.cdc.postgres.snapshot import split_row
from mainstem.pipelines.cdc.table_selection import (
    TableRouting,
    is_selected,
    kept_columns,
    mask,
    mask_for,
    null_for,
)
from mainstem.pipelines.connector.shapes import TableRoute


def test_without_a_list_every_table_of_public_is_followed() -> None:
    assert is_selected("public", "orders", (), ())
    assert not is_selected("audit", "orders", (), ())
    assert not is_selected("public", "orders", (), ("*.orders",))
    assert is_selected("audit", "log_1", ("audit.log_?",), ())


def test_columns_are_kept_unless_left_out() -> None:
    names = ["id", "name", "secret"]
    assert kept_columns("s.t", names, (), ("s.*.secret",)) == {"id", "name"}
    assert kept_columns("s.t", names, ("s.t.name",), ()) == {"name"}


def test_masks_hide_values() -> None:
    assert json.loads(mask("hash", "salt")(b"x")) == hashlib.sha256(b"saltx").hexdigest()
    assert json.loads(mask("redact", "")(b"x")) == "*" * 10
    assert json.loads(mask("truncate:2", "")("äöü".encode())) == "äö"
    assert mask_for("s.t.c", {"s.*.d": "hash"}, "") is None
    with pytest.raises(ValueError, match="not a mask"):
        mask("rot13", "")


def test_a_table_goes_to_its_route_or_to_the_pattern() -> None:
    routes = [TableRoute(table="a", topic="anywhere"), TableRoute(schema="s", table="b", topic="b")]
    routing = TableRouting("cdc.{database}.{schema}.{table}", database="d", name="n", routes=routes)
    assert routing.topic("any", "a") == "anywhere"
    assert routing.topic("s", "b") == "b"
    assert routing.topic("other", "b") == "cdc.d.other.b"
    assert routing.topic("My Schema", "töpic") == "cdc.d.My_Schema.t_pic"


@given(st.lists(st.none() | st.binary().filter(lambda value: b"\r" not in value), min_size=1))
def test_rows_of_copy_are_read_as_they_were_written(values: list[bytes | None]) -> None:
    line = b"\t".join(b"\\N" if value is None else _escaped(value) for value in values) + b"\n"
    assert split_row(line) == values


def _escaped(value: bytes) -> bytes:
    for plain, escaped in ((b"\\", b"\\\\"), (b"\t", b"\\t"), (b"\n", b"\\n"), (b"\v", b"\\v")):
        value = value.replace(plain, escaped)
    return value


def test_a_redacted_column_does_not_show_that_it_is_null() -> None:
    masks = {"*.mail": "redact", "*.card": "hash"}
    assert null_for("public.t.mail", masks) == b'"**********"'
    assert null_for("public.t.card", masks) == null_for("public.t.id", masks) == b"null"
