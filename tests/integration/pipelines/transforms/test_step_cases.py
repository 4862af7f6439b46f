"""Every step against a table of cases: records in, records out."""

import hashlib
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession
from tests.integration.pipelines.transforms.outcomes import (
    DROPPED,
    Out,
    Record,
    Steps,
    outcomes,
    step,
)

SAME = "same bytes"


class Dead(NamedTuple):
    """A record that is given up; the error holds this text."""

    error: str


class Table(NamedTuple):
    """Steps and what they make of values: a text, SAME, DROPPED, None (no value) or Dead."""

    name: str
    steps: Steps
    cases: list[tuple[str | bytes | None, Any]]


CREATED = (
    '{"before":null,"after":{"id":1,"s":"x","amount":1.10},"source":{"connector":"postgresql",'
    '"db":"shop","schema":"public","table":"users","ts_ms":5,"txId":9},"op":"c","ts_ms":7}'
)
DELETED = (
    '{"before":{"id":1,"s":"x"},"after":null,'
    '"source":{"db":"shop","schema":"public","table":"users"},"op":"d","ts_ms":8}'
)
TRUNCATED = '{"before":null,"after":null,"source":{"table":"users"},"op":"t"}'
MALFORMED: list[tuple[str | bytes | None, Any]] = [
    ("{bad", Dead("not JSON")),
    ("", Dead("not JSON")),
    ('{"s":1} x', Dead("not JSON")),
    ('{"s":1}{"s":2}', Dead("not JSON")),
    ('{"s":1},{"s":2}', Dead("not JSON")),
    ('{"s":1}} {}', Dead("not JSON")),
    ("{'s':1}", Dead("not JSON")),
    ('{"s":NaN}', Dead("not JSON")),
    ("[1]", Dead("not a JSON object")),
    ('"text"', Dead("not a JSON object")),
    ("null", Dead("not a JSON object")),
    ('{"s":1,"s":2}', Dead("twice")),
    ('{"a":{"s":1,"s":2}}', Dead("twice")),
    ('{"s":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"g":2}', Dead("a field occurs twice")),
    ('{"s":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"b":2}', Dead("a field occurs twice")),
    (b'{"s":"\xff"}', Dead("UTF-8")),
    ('{"s":1,"n":1e999}', Dead("range of a double")),
]


def ts(**config: Any) -> Steps:
    return [step("timestamp_converter", fields=["t"], **config)]


def t(value: str) -> str:
    return f'{{"t":{value}}}'


def condition(text: str) -> Steps:
    return [step("filter", condition=text)]


MASKS = [
    Table(
        "mask_field redacts",
        [step("mask_field", fields=["s", "a.x", "list[1].y"])],
        [
            ('{"n":1,"s":"secret","z":2}', '{"n":1,"s":"***","z":2}'),
            ('{"s":5}', '{"s":"***"}'),
            ('{"s":{"deep":1}}', '{"s":"***"}'),
            ('{"s":null}', '{"s":null}'),
            ('{"q":1}', '{"q":1}'),
            ("{}", "{}"),
            ('{"a":{"x":"hi","y":1}}', '{"a":{"x":"***","y":1}}'),
            ('{"a":5}', '{"a":5}'),
            ('{"list":[1,{"y":"hi"}]}', '{"list":[1,{"y":"***"}]}'),
            (None, None),
            *MALFORMED,
        ],
    ),
    Table(
        "mask_field hashes",
        [step("mask_field", fields=["s"], method="sha256", salt="pepper")],
        [('{"s":"a"}', f'{{"s":"{hashlib.sha256(b"peppera").hexdigest()}"}}')],
    ),
    Table(
        "mask_field keeps the end",
        [step("mask_field", fields=["s"], method="keep_last", keep=4)],
        [
            ('{"s":"4111111111111234"}', '{"s":"************1234"}'),
            ('{"s":"1234"}', '{"s":"****"}'),
            ('{"s":""}', '{"s":""}'),
            ('{"s":123456}', '{"s":"**3456"}'),
        ],
    ),
    Table(
        "mask_field keeps the beginning",
        [step("mask_field", fields=["s"], method="keep_first", keep=2)],
        [('{"s":"abcde"}', '{"s":"ab***"}'), ('{"s":"ab"}', '{"s":"**"}')],
    ),
    Table(
        "mask_field nulls",
        [step("mask_field", fields=["s"], method="null")],
        [('{"s":"a"}', '{"s":null}')],
    ),
    Table(
        "set_null always",
        [step("set_null", fields=["s", "a.x"])],
        [
            ('{"s":1,"a":{"x":1}}', '{"s":null,"a":{"x":null}}'),
            ('{"q":1}', '{"q":1}'),
            (None, None),
        ],
    ),
    Table(
        "set_null if empty",
        [step("set_null", fields=["s"], condition="if_empty")],
        [('{"s":""}', '{"s":null}'), ('{"s":" "}', '{"s":" "}'), ('{"s":{}}', '{"s":{}}')],
    ),
    Table(
        "set_null on a value",
        [step("set_null", fields=["s"], condition={"equals": 1})],
        [
            ('{"s":1}', '{"s":null}'),
            ('{"s":1.0}', '{"s":null}'),
            ('{"s":"1"}', '{"s":"1"}'),
            ('{"s":true}', '{"s":true}'),
        ],
    ),
    Table(
        "set_null on a text",
        [step("set_null", fields=["s"], condition={"equals": "true"})],
        [('{"s":"true"}', '{"s":null}'), ('{"s":true}', '{"s":true}')],
    ),
    Table(
        "set_null on an array",
        [step("set_null", fields=["s"], condition={"equals": [1, "a"]})],
        [('{"s":[1, "a"]}', '{"s":null}'), ('{"s":["a",1]}', '{"s":["a",1]}')],
    ),
    Table(
        "set_null on a pattern",
        [step("set_null", fields=["s"], condition={"matches": "n/?a"})],
        [('{"s":"n/a"}', '{"s":null}'), ('{"s":"xn/a"}', '{"s":"xn/a"}')],
    ),
]
SHAPES = [
    Table(
        "replace_field renames in place",
        [step("replace_field", renames={"a": "b", "x": "y", "y": "x"})],
        [
            ('{"q":0,"a":1,"b":2,"z":3}', '{"q":0,"b":1,"z":3}'),
            ('{"b":2}', '{"b":2}'),
            ('{"x":1,"y":2}', '{"y":1,"x":2}'),
            ('{"x":1}', '{"y":1}'),
            (None, None),
        ],
    ),
    Table(
        "rename_field moves between levels",
        [step("rename_field", renames={"a.x": "top", "b": "a.q.r"})],
        [
            ('{"a":{"x":1,"k":2},"b":3}', '{"a":{"k":2,"q":{"r":3}},"top":1}'),
            ('{"b":3}', '{"a":{"q":{"r":3}}}'),
            ('{"a":5,"b":3}', Dead("not an object")),
            ('{"a":5}', '{"a":5}'),
        ],
    ),
    Table(
        "replace_field keeps only",
        [step("replace_field", include=["id", "a.x", "['odd.name']"])],
        [
            ('{"z":0,"id":1,"a":{"x":1,"y":2},"odd.name":3}', '{"id":1,"a":{"x":1},"odd.name":3}'),
            ('{"z":0}', "{}"),
        ],
    ),
    Table(
        "replace_field takes away",
        [step("replace_field", exclude=["s", "a.x", "list[0]"])],
        [
            ('{"s":1,"a":{"x":1,"y":2},"list":[1,2]}', '{"a":{"y":2},"list":[2]}'),
            ('{"a":"x"}', '{"a":"x"}'),
        ],
    ),
    Table(
        "remove_field",
        [step("remove_field", fields=["s"])],
        [('{"s":1,"q":2}', '{"q":2}'), ('{"q":2}', '{"q":2}'), (None, None)],
    ),
    Table(
        "insert_field",
        [step("insert_field", static_fields={"a": [1, {"k": None}], "b.c": "x"}, topic_field="t")],
        [
            ("{}", '{"a":[1,{"k":null}],"b":{"c":"x"},"t":"t"}'),
            ('{"a":0,"q":1}', '{"a":[1,{"k":null}],"q":1,"b":{"c":"x"},"t":"t"}'),
            ('{"b":{"z":1}}', '{"b":{"c":"x","z":1},"a":[1,{"k":null}],"t":"t"}'),
            ('{"b":null}', '{"b":{"c":"x"},"a":[1,{"k":null}],"t":"t"}'),
            ('{"b":5}', Dead("not an object")),
            (None, None),
        ],
    ),
    Table(
        "add_field leaves what is there",
        [step("add_field", static_fields={"a": 1}, overwrite=False)],
        [('{"a":0}', '{"a":0}'), ('{"a":null}', '{"a":null}'), ("{}", '{"a":1}')],
    ),
    Table(
        "flatten",
        [step("flatten")],
        [
            (
                '{"a":{"b":{"c":1,"e":{}},"d":[{"x":1}]},"z":null}',
                '{"a.b.c":1,"a.b.e":{},"a.d":[{"x":1}],"z":null}',
            ),
            ('{"a":{"b":1},"a.b":2}', Dead("same name")),
            ("{}", "{}"),
            (None, None),
        ],
    ),
    Table(
        "flatten to a depth",
        [step("flatten", delimiter="_", max_depth=1)],
        [('{"a":{"b":{"c":1}}}', '{"a_b":{"c":1}}')],
    ),
    Table(
        "unwrap",
        [step("unwrap", field="payload.data")],
        [
            (
                '{"id":1,"name":"old","payload":{"data":{"name":"new","v":2}}}',
                '{"id":1,"name":"new","v":2}',
            ),
            ('{"id":1}', '{"id":1}'),
            ('{"payload":{"data":null}}', '{"payload":{"data":null}}'),
            ('{"payload":{"data":5}}', Dead("not an object")),
        ],
    ),
    Table(
        "unwrap only",
        [step("unwrap", field="payload", only=True)],
        [('{"id":1,"payload":{"x":1}}', '{"x":1}')],
    ),
]
TYPES = [
    Table(
        "cast to integer",
        [step("cast", specs={"t": "integer", "deep.t": "integer"})],
        [
            (t('"12"'), t("12")),
            (t('" -7 "'), t("-7")),
            (t("12.9"), t("12")),
            (t('"-12.9"'), t("-12")),
            (t("true"), t("1")),
            (t("1e3"), t("1000")),
            (t("12345678901234567890123"), t("12345678901234567890123")),
            (t("null"), t("null")),
            ("{}", "{}"),
            ('{"deep":{"t":"5"}}', '{"deep":{"t":5}}'),
            (t('"abc"'), Dead('t cannot be converted: "abc"')),
            (t('""'), Dead("t cannot be converted")),
            (t("{}"), Dead("t cannot be converted")),
            (None, None),
        ],
    ),
    Table(
        "cast to float",
        [step("cast", specs={"t": "float"})],
        [
            (t('"1.5"'), t("1.5")),
            (t("12"), t("12.0")),
            (t('"1e5"'), t("100000.0")),
            (t('"NaN"'), Dead("cannot")),
            (t("true"), Dead("cannot")),
            (t("[1]"), Dead("cannot")),
        ],
    ),
    Table(
        "cast to boolean",
        [step("cast", specs={"t": "boolean"})],
        [
            (t('"Yes"'), t("true")),
            (t("1"), t("true")),
            (t("0"), t("false")),
            (t('"off"'), t("false")),
            (t("2"), Dead("cannot")),
        ],
    ),
    Table(
        "cast to string",
        [step("cast", specs={"t": "string"})],
        [
            (t('"a"'), t('"a"')),
            (t("1.5"), t('"1.5"')),
            (t("false"), t('"false"')),
            (t('{"a":[1]}'), '{"t":"{\\"a\\":[1]}"}'),
        ],
    ),
    Table(
        "cast to json",
        [step("cast", specs={"t": "json"}, on_error="keep")],
        [
            ('{"t":"{\\"a\\":[1]}"}', t('{"a":[1]}')),
            (t('"[1"'), t('"[1"')),
            (t("5"), t("5")),
        ],
    ),
    Table(
        "cast with null for what cannot be",
        [step("cast", specs={"t": "integer"}, on_error="null")],
        [(t('"abc"'), t("null")), (t('"5"'), t("5"))],
    ),
    Table(
        "timestamps as ISO 8601",
        ts(),
        [
            (t("1767225600"), t('"2026-01-01T00:00:00Z"')),
            (t("1767225600123"), t('"2026-01-01T00:00:00.123Z"')),
            (t("1767225600123456"), t('"2026-01-01T00:00:00.123456Z"')),
            (t("1767225600123456789"), t('"2026-01-01T00:00:00.123456Z"')),
            (t("-1"), t('"1969-12-31T23:59:59Z"')),
            (t('"2026-01-01T02:00:00.5+02:00"'), t('"2026-01-01T00:00:00.500Z"')),
            (t('"2026-01-01 10:00:00"'), t('"2026-01-01T10:00:00Z"')),
            (t('"2026-01-01"'), t('"2026-01-01T00:00:00Z"')),
            (t("null"), t("null")),
            ("{}", "{}"),
            (t('"soon"'), Dead("t cannot be converted")),
            (t("99999999999999999999999"), Dead("t cannot be converted")),
            (t("{}"), Dead("t cannot be converted")),
            (None, None),
        ],
    ),
    Table("timestamps as seconds", ts(format="epoch_seconds"), [(t("-1500"), t("-1500"))]),
    Table(
        "timestamps as milliseconds",
        ts(format="epoch_millis"),
        [(t('"2026-01-01T00:00:00.0019Z"'), t("1767225600001"))],
    ),
    Table(
        "timestamps as microseconds",
        ts(format="epoch_micros", **{"from": "epoch_seconds"}),
        [(t("1.5"), t("1500000")), (t('"1.5"'), t("1500000")), (t('"x"'), Dead("cannot"))],
    ),
    Table(
        "timestamps as days",
        ts(format="date_only", timezone="Asia/Tokyo"),
        [(t('"2026-01-01 03:00:00"'), t('"2025-12-31"'))],
    ),
    Table(
        "timestamps as times of day",
        ts(format="time_only"),
        [(t('"2026-01-01T03:00:00.25Z"'), t('"03:00:00.250"'))],
    ),
    Table(
        "timestamps by a pattern",
        ts(pattern="dd/MM/yyyy HH:mm", timezone="Europe/Berlin", **{"from": "pattern"}),
        [(t('"01/07/2026 13:00"'), t('"2026-07-01T11:00:00Z"')), (t('"x"'), Dead("cannot"))],
    ),
    Table(
        "time zones",
        [step("timezone_converter", fields=["t"], to="America/New_York")],
        [
            (t('"2026-07-01T12:00:00"'), t('"2026-07-01T08:00:00-04:00"')),
            (t("1767225600"), t('"2025-12-31T19:00:00-05:00"')),
            (t('"2026-01-01T00:00:00+05:30"'), t('"2025-12-31T13:30:00-05:00"')),
            (t("null"), t("null")),
            (t('"x"'), Dead("cannot")),
        ],
    ),
    Table(
        "days of a time zone",
        [
            step(
                "timezone_converter",
                fields=["t"],
                to="Asia/Kolkata",
                date_only=True,
                **{"from": "America/New_York"},
            )
        ],
        [(t('"2026-07-01 22:00:00"'), t('"2026-07-02"'))],
    ),
    Table(
        "compute_field",
        [
            step(
                "compute_field",
                computations=[
                    {
                        "target": "full",
                        "type": "concat",
                        "parts": ["first", " ", "a.last", {"literal": "x"}, "none"],
                    },
                    {"target": "up", "type": "upper", "source": "full"},
                    {"target": "low", "type": "lower", "source": "up"},
                    {
                        "target": "c",
                        "type": "coalesce",
                        "fields": ["none", "z"],
                        "default": [1],
                    },
                    {"target": "h", "type": "hash", "fields": ["first"], "algorithm": "md5"},
                    {"target": "id", "type": "uuid", "fields": ["first"]},
                ],
            )
        ],
        [
            (
                '{"first":"A","a":{"last":"b"},"z":null}',
                '{"first":"A","a":{"last":"b"},"z":null,"full":"A bx","up":"A BX","low":"a bx",'
                '"c":[1],"h":"7fc56270e7a70fa81a5935b72eacbe29",'
                '"id":"559aead0-8264-8579-8d39-09718cdd05ab"}',
            ),
            (None, None),
        ],
    ),
]
FLOWS = [
    *(
        Table(f"filter {text}", condition(text), [(value, SAME if kept else DROPPED)])
        for text, value, kept in [
            ("s = active", '{"s":"active"}', True),
            ("s = active", '{"s":"idle"}', False),
            ("s = active", "{}", False),
            ("s != active", "{}", True),
        ]
    ),
    Table(
        "filter on everything",
        condition(
            "n >= 1.5 and n < 10 and not (s = 'y' or s in (x, \"z\")) and a.x matches 'h.'"
            " and q not in (1, 2) and z is_null and n is_not_null and n exists"
        ),
        [
            ('{"n":1.5,"a":{"x":"hi"}}', SAME),
            ('{"n":"9","a":{"x":"hi"},"z":null}', SAME),
            ('{"n":10,"a":{"x":"hi"}}', DROPPED),
            ('{"n":"ten","a":{"x":"hi"}}', DROPPED),
            ('{"n":2,"s":"z","a":{"x":"hi"}}', DROPPED),
            ('{"n":2,"a":{"x":"his"}}', DROPPED),
            ('{"n":2,"a":{"x":"hi"},"q":2.0}', DROPPED),
            ('{"n":2,"a":{"x":"hi"},"z":0}', DROPPED),
            (None, SAME),
            ("{bad", Dead("not JSON")),
        ],
    ),
    Table(
        "filter with whole numbers beyond a double",
        condition("n = 9007199254740993"),
        [('{"n":9007199254740993}', SAME), ('{"n":9007199254740992}', DROPPED)],
    ),
    Table(
        "filter that drops",
        [step("filter", condition="email matches .*@test\\.com", drop=True)],
        [
            ('{"email":"a@test.com"}', DROPPED),
            ('{"email":"a@testxcom"}', SAME),
            ('{"n":1.10}', SAME),
            (None, SAME),
        ],
    ),
]
CHANGES = [
    Table(
        "steps see both images of a change event",
        [step("mask_field", fields=["s"])],
        [
            (
                CREATED,
                '{"before":null,"after":{"amount":1.1,"id":1,"s":"***"},"source":{"connector":'
                '"postgresql","db":"shop","schema":"public","table":"users","ts_ms":5,"txId":9},'
                '"op":"c","ts_ms":7}',
            ),
            (
                DELETED,
                '{"before":{"id":1,"s":"***"},"after":null,"source":{"db":"shop","schema":'
                '"public","table":"users"},"op":"d","ts_ms":8}',
            ),
            ('{"op":1,"source":2,"after":3,"s":4}', '{"op":1,"source":2,"after":3,"s":"***"}'),
        ],
    ),
    Table(
        "extract_new_record_state",
        [
            step(
                "extract_new_record_state",
                add_table=True,
                add_schema=True,
                add_database=True,
                add_op=True,
                add_ts=True,
                add_fields=["txId"],
            )
        ],
        [
            (
                CREATED,
                '{"amount":1.1,"id":1,"s":"x","__table":"users","__schema":"public",'
                '"__db":"shop","__op":"c","__ts":7,"__txId":"9"}',
            ),
            (DELETED, None),
            (TRUNCATED, DROPPED),
            (None, None),
            ('{"n":1.10}', SAME),
            ("{bad", Dead("not JSON")),
        ],
    ),
    Table(
        "extract_new_record_state without tombstones",
        [step("extract_new_record_state", drop_tombstones=True)],
        [(CREATED, '{"amount":1.1,"id":1,"s":"x"}'), (DELETED, DROPPED), (None, DROPPED)],
    ),
    Table(
        "what a change event was is known after it was unwrapped",
        [
            step("extract_new_record_state", rewrite_deletes=True),
            step("mask_field", {"table": "users", "operations": ["delete"]}, fields=["s"]),
        ],
        [
            (CREATED, '{"amount":1.1,"id":1,"s":"x","__deleted":false}'),
            (DELETED, '{"id":1,"s":"***","__deleted":true}'),
        ],
    ),
]
TABLES = [*MASKS, *SHAPES, *TYPES, *FLOWS, *CHANGES]


@pytest.mark.parametrize("table", [pytest.param(table, id=table.name) for table in TABLES])
def test_a_step_makes_of_a_record_what_the_table_says(spark: SparkSession, table: Table) -> None:
    found = outcomes(spark, table.steps, [Record(value) for value, _ in table.cases])
    for (given, wanted), out in zip(table.cases, found, strict=True):
        if isinstance(wanted, Dead):
            assert isinstance(out, Out), given
            assert wanted.error in (out.error or "nothing"), given
            assert out.step == f"transforms[0] ({table.steps[0]['type']})"
            assert out.value == (given.encode() if isinstance(given, str) else given)
        elif wanted == DROPPED:
            assert out == DROPPED, given
        else:
            assert isinstance(out, Out), given
            assert out.error is None, given
            assert out.text == (given if wanted == SAME else wanted)
