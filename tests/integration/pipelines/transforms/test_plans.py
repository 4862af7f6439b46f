"""What a plan is to Spark: no Python in it, one pass, streams, windows, columns for tables."""

import contextlib
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.integration.pipelines.transforms.outcomes import (
    SCHEMA,
    Record,
    outcomes,
    step,
    wire_frame,
)

from mainstem.model.errors import InvalidRequest
from mainstem.pipelines.problems import Problems
from mainstem.pipelines.transforms import compile_steps, step_schemas, structured

EXAMPLES: dict[str, dict[str, Any]] = {
    "add_field": {"static_fields": {"a": 1}, "timestamp_field": "at"},
    "cast": {"specs": {"a": "integer", "b.c": "boolean", "d": "float", "e": "json"}},
    "compute_field": {
        "computations": [
            {"target": "a", "type": "concat", "parts": ["b", "-", "c"]},
            {"target": "h", "type": "hash", "fields": ["b", "c"]},
            {"target": "u", "type": "uuid"},
            {"target": "n", "type": "now"},
        ]
    },
    "content_router": {"routes": [{"when": "a > 1 and b matches x+", "topic": "t.{a}"}]},
    "extract_new_record_state": {"add_table": True, "add_op": True, "rewrite_deletes": True},
    "filter": {"condition": "a = 1 or b in (x, y)"},
    "flatten": {"delimiter": "_"},
    "header_to_value": {"fields": {"table": "a"}, "all_headers_prefix": "h", "move": True},
    "insert_field": {"static_fields": {"a.b": 1}, "record_timestamp_field": "at"},
    "mask_field": {"fields": ["a", "b.c"], "method": "sha256"},
    "outbox": {},
    "regex_router": {"routes": [{"pattern": "(.*)", "topic": "x.$1"}]},
    "remove_field": {"fields": ["a", "b.c"]},
    "rename_field": {"renames": {"a": "b"}},
    "replace_field": {"include": ["a"], "renames": {"a.b": "c"}},
    "set_null": {"fields": ["a"], "condition": {"matches": "x"}},
    "sql": {"query": "SELECT a, count(*) AS n FROM input GROUP BY a", "schema": "a string"},
    "timestamp_converter": {"fields": ["a"]},
    "timezone_converter": {"fields": ["a"], "to": "Europe/Berlin"},
    "unwrap": {"field": "a.b"},
    "value_to_key": {"fields": ["a"]},
}
WITH_PYTHON = {"externalize_blob"}
PREDICATE = {"table": "a", "operations": ["insert"], "field_exists": "b.c", "negate": True}


def physical_plan(frame: DataFrame) -> str:
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        frame.explain()
    return shown.getvalue()


def test_every_step_has_an_example_here() -> None:
    assert set(EXAMPLES) == set(step_schemas()) - WITH_PYTHON


@pytest.mark.parametrize("kind", EXAMPLES)
def test_no_step_runs_python_for_a_record(spark: SparkSession, kind: str) -> None:
    # The records come from the JVM, so that whatever is Python in the plan is the step's.
    frame = spark.range(3).selectExpr("cast(id AS string) AS value", "'t' AS topic")
    predicate = None if kind == "sql" else PREDICATE
    applied = compile_steps([step(kind, predicate, **EXAMPLES[kind])], "t").apply(frame)
    assert applied.dead is not None
    for part in (applied.frame, applied.dead):
        plan = physical_plan(part)
        assert "Project" in plan
        assert "Python" not in plan
        assert "Arrow" not in plan


def test_records_are_parsed_once_even_if_a_filter_follows(spark: SparkSession) -> None:
    frame = spark.range(3).selectExpr("cast(id AS string) AS value")
    steps = [step("filter", condition="a = 1"), step("mask_field", fields=["b"])]
    assert physical_plan(compile_steps(steps, "t").apply(frame).frame).count("from_json(") == 1


def test_good_and_dead_records_come_apart_in_frames_of_their_own(spark: SparkSession) -> None:
    records = [Record('{"a":"1"}'), Record('{"a":"x"}'), Record("{bad")]
    good, dead = compile_steps([step("cast", specs={"a": "integer"})], "s.t").apply(
        wire_frame(spark, records)
    )
    assert [bytes(row.value) for row in good.collect()] == [b'{"a":1}']
    assert good.columns == SCHEMA_NAMES
    assert dead is not None
    assert [(bytes(row.value), row.error, row.step) for row in dead.collect()] == [
        (b'{"a":"x"}', 'a cannot be converted: "x"', "s.t[0] (cast)"),
        (b"{bad", "the value is not JSON", "s.t[0] (cast)"),
    ]


def test_without_steps_a_frame_is_left_as_it_is(spark: SparkSession) -> None:
    frame = wire_frame(spark, [Record("x")])
    assert compile_steps([], "t").apply(frame) == (frame, None)


def test_a_frame_of_columns_becomes_json_first(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, None)], "id int, name string")
    good = compile_steps([step("insert_field", static_fields={"x": 2})], "t").apply(frame).frame
    assert bytes(good.collect()[0].value) == b'{"id":1,"name":null,"x":2}'


def test_sql_sees_declared_columns_and_the_parts_of_the_record(spark: SparkSession) -> None:
    query = """
        WITH big AS (SELECT * FROM input WHERE amount > 1)
        SELECT _partition, id, amount * 2 AS twice, concat('by-', _topic) AS _topic, id AS _key
        FROM big
    """
    schema = "id bigint, amount decimal(10,2), at timestamp"
    values = ['{"id":7,"amount":1.10}', '{"id":8,"amount":1}', '{"id":"x"}', '{"id":1} x', None]
    found = outcomes(spark, [step("sql", query=query, schema=schema)], [Record(v) for v in values])
    first, second, odd, longer, tombstone = found
    assert not isinstance(first, str)
    assert (first.topic, first.key, first.text) == ("by-t", b"7", '{"id":7,"twice":2.20}')
    assert (second, tombstone) == ("dropped", "dropped")
    for out, value in ((odd, values[2]), (longer, values[3])):
        assert not isinstance(out, str)
        assert out.text == value
        assert "does not match the schema" in (out.error or "")


def test_sql_without_a_schema_sees_a_map_of_variants(spark: SparkSession) -> None:
    query = "SELECT _partition, to_json(fields) AS _value, fields['a']::int > 1 AS x FROM input"
    steps = [step("sql", query=query)]
    good, bad = outcomes(spark, steps, [Record('{"a":"2"}'), Record("{bad")])
    assert not isinstance(good, str)
    assert good.text == '{"a":"2"}'
    assert not isinstance(bad, str)
    assert bad.error == "the value is not JSON"


@pytest.mark.parametrize(
    ("config", "place"),
    [
        ({"query": "SELECT nope FROM input"}, "p.transforms[0].config.query"),
        ({"query": "SELEC * FROM input"}, "p.transforms[0].config.query"),
        ({"query": "SELECT * FROM input", "schema": "a blob"}, "p.transforms[0].config.schema"),
        ({"query": "SELECT * FROM input", "schema": "_key int"}, "p.transforms[0].config.schema"),
    ],
)
def test_what_spark_refuses_is_told_with_its_place(
    spark: SparkSession, config: dict[str, Any], place: str
) -> None:
    plan = compile_steps([step("sql", **config)], "p.transforms")
    with pytest.raises(Problems) as refused:
        plan.apply(wire_frame(spark, []))
    [problem] = refused.value.problems
    assert problem.path == place


def test_windows_of_a_stream_close_behind_the_watermark(
    spark: SparkSession, tmp_path: Path
) -> None:
    steps = [
        step("filter", condition="kind = sale"),
        step("cast", specs={"amount": "float"}),
        step(
            "sql",
            schema="at timestamp, kind string, amount double",
            watermark={"column": "at", "delay": "1 minute"},
            query="""
                SELECT date_format(window.start, 'HH:mm') AS start, sum(amount) AS total,
                       'totals' AS _topic
                FROM input GROUP BY window(at, '1 minute')
            """,
        ),
        step("mask_field", {"field_value": {"field": "start", "value": "12:00"}}, fields=["x"]),
    ]
    plan = compile_steps(steps, "t")
    assert plan.output_mode == "append"
    batches = [
        ['{"kind":"sale","at":"2026-01-01T12:00:10Z","amount":"1"}', "{bad"],
        ['{"kind":"sale","at":"2026-01-01T12:00:50Z","amount":2}', '{"kind":"visit"}'],
        ['{"kind":"sale","at":"2026-01-01T12:05:00Z","amount":4}'],
        ['{"kind":"sale","at":"2026-01-01T12:05:30Z","amount":4}'],
        ['{"kind":"sale","at":"2026-01-01T12:00:00Z","amount":8}'],
    ]
    folder = tmp_path / "in"
    folder.mkdir()
    for number, values in enumerate(batches):
        rows = [json.dumps({"value": value, "topic": "t"}) for value in values]
        file = folder / f"{number}.json"
        file.write_text("\n".join(rows))
        os.utime(file, (number, number))  # Spark takes them in the order of their age
    stream = (
        spark.readStream.schema("value string, topic string")
        .option("maxFilesPerTrigger", 1)
        .json(str(folder))
    )
    good, dead = plan.apply(stream)
    assert dead is not None
    assert run_stream(good, plan.output_mode, tmp_path / "good") == [
        ("totals", '{"start":"12:00","total":3}')
    ]
    assert run_stream(dead, "append", tmp_path / "dead") == [("t", "{bad")]


def run_stream(frame: DataFrame, mode: str, folder: Path) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []

    def collect(batch: DataFrame, _: int) -> None:
        found.extend((row.topic, bytes(row.value).decode()) for row in batch.collect())

    query = (
        frame.writeStream.foreachBatch(collect)
        .outputMode(mode)
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return found


def test_a_session_in_another_time_zone_is_refused(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        with pytest.raises(InvalidRequest, match="Asia/Tokyo"):
            compile_steps([step("flatten")], "t").apply(wire_frame(spark, []))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_sinks_that_keep_tables_get_columns(spark: SparkSession) -> None:
    values = ['{"id":1,"amount":1.10,"more":2}', '{"id":"x"}', None, '{"id":2}{"id":3}', '{"id":4}']
    frame = wire_frame(spark, [Record(value) for value in values])
    good, dead = structured(frame, "id bigint, amount decimal(10,2)")
    assert good.columns[:2] == ["id", "amount"]
    assert [(row.id, row.amount and str(row.amount), row._topic) for row in good.collect()] == [
        (1, "1.10", "t"),
        (None, None, "t"),
        (4, None, "t"),
    ]
    assert dead is not None
    assert [bytes(row.value).decode() for row in dead.collect()] == [values[1], values[3]]
    with pytest.raises(Problems, match="not a schema"):
        structured(frame, "id")


SCHEMA_NAMES = [column.split()[0] for column in SCHEMA.split(", ")]
