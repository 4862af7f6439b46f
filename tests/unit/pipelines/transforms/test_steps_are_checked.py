"""Everything that is wrong with steps is told at once, with its place, before Spark starts."""

import json
from typing import Any

import pytest

from mainstem.pipelines.problems import Problems
from mainstem.pipelines.transforms import compile_steps, step_schemas


def step(kind: str, **config: Any) -> dict[str, Any]:
    return {"type": kind, "config": config}


def problems(*steps: dict[str, Any]) -> list[tuple[str, str]]:
    with pytest.raises(Problems) as refused:
        compile_steps(steps, "sources.s.transforms")
    found = refused.value.problems
    assert all(problem.path.startswith("sources.s.transforms") for problem in found)
    return [(p.path.removeprefix("sources.s.transforms"), str(p)) for p in found]


def test_every_problem_of_every_step_is_told() -> None:
    found = problems(
        {"type": "mask_field", "config": {"feilds": ["a"], "method": "rot13"}, "nmae": "x"},
        step("no_such_step"),
        {"type": "cast", "config": {"specs": {"a": "integr", "b..c": "string"}}},
        {"type": "flatten", "config": {"max_depth": -1}, "predicate": {"negate": True}},
    )
    assert [path for path, _ in found] == [
        "[0].nmae",
        "[1].type",
        "[2].config.specs[...]",
        "[3].config.max_depth",
        "[3].predicate",
    ]


def test_a_misspelt_setting_gets_the_right_one_named() -> None:
    [(path, said), (missing, _), (method, _)] = problems(
        step("mask_field", feilds=["a"], method="rot13")
    )
    assert (path, missing, method) == (
        "[0].config.feilds",
        "[0].config.fields",
        "[0].config.method",
    )
    assert "did you mean fields?" in said


@pytest.mark.parametrize(
    ("given", "place", "said"),
    [
        (step("mask_field", fields=[]), "config.fields", "no field"),
        (step("mask_field", fields=["a..b"]), "config.fields", "a..b"),
        (step("mask_field", fields=["[0].a"]), "config.fields", "records are objects"),
        (step("mask_field", fields=["a"], salt="x"), "config.salt", "use a salt"),
        (step("set_null", fields=["a"], condition={"like": 1}), "config.condition", "like"),
        (step("set_null", fields=["a"], condition={"matches": "("}), "config.condition.matches",
         "("),
        (step("replace_field"), "config", "nothing to do"),
        (step("rename_field", renames={"a": "c", "b": "c"}), "config.renames", "two fields"),
        (step("insert_field"), "config.static_fields", "no field"),
        (step("timestamp_converter", fields=["a"], pattern="y"), "config.pattern", "from: pattern"),
        (step("timezone_converter", fields=["a"], to="Mars"), "config.to", "Mars"),
        (step("filter", condition="a ="), "config.condition", "value is missing"),
        (step("filter", condition="a = null"), "config.condition", "is_null"),
        (step("filter", condition="a ~ b"), "config.condition", "not an operator"),
        (step("filter", condition="a = 1 b"), "config.condition", "unexpected"),
        (step("filter", condition="(a = 1"), "config.condition", "')' is missing"),
        (step("filter", condition="a matches ("), "config.condition", "not a regular expression"),
        (step("content_router"), "config.routes", "no route"),
        (step("content_router", routes=[{"topic": "a b", "when": "a=1"}]), "config.routes[0].topic",
         "not a topic"),
        (step("content_router", routes=[{"topic": "a", "field": "x"}]), "config.routes[0]",
         "one of"),
        (step("regex_router", routes=[{"pattern": "a", "topic": "$1"}]), "config.routes[0].topic",
         "0 groups"),
        (step("regex_router", routes=[{"pattern": "(?P<x>a)", "topic": "b"}]),
         "config.routes[0].pattern", "(?<name>"),
        (step("value_to_key", fields=["a", "b"], format="text"), "config.format", "one field"),
        (step("header_to_value"), "config.fields", "nothing to copy"),
        (step("outbox", topic="a/{b}"), "config.topic", "not a topic"),
        (step("compute_field", computations=[]), "config.computations", "no field"),
        (step("compute_field", computations=[{"target": "a", "type": "upper"}]),
         "config.computations[0].source", "requires source"),
        (step("compute_field", computations=[{"target": "a", "type": "now", "source": "b"}]),
         "config.computations[0].source", "does not support source"),
        (step("sql", query="SELECT 1"), "config.query", "table input"),
        (step("sql", query="TABLE input", watermark={"column": "a", "delay": "soon"}),
         "config.watermark.delay", "not a duration"),
        (step("sql", query="TABLE input") | {"predicate": {"topic": "a"}}, "predicate", "WHERE"),
        (step("flatten") | {"predicate": {"table": "a", "tables": ["b"]}}, "predicate.table",
         "mutually exclusive"),
        (step("flatten") | {"predicate": {"table": "("}}, "predicate.table", "regular expression"),
        (step("flatten") | {"predicate": {"operations": ["upsert"]}}, "predicate.operations",
         "upsert"),
        (step("flatten") | {"predicate": {"field_exists": "a."}}, "predicate.field_exists", "a."),
        (step("flatten") | {"config": [1]}, "config", "object"),
    ],
)  # fmt: skip
def test_a_setting_that_cannot_work_is_refused(
    given: dict[str, Any], place: str, said: str
) -> None:
    [(path, message)] = problems(given)
    assert path == f"[0].{place}"
    assert said in message


def test_good_steps_make_a_plan_without_spark() -> None:
    steps = [
        step("filter", condition="a.b[0] != 'x' and not (c in (1, two) or d exists)"),
        step("mask_field", fields=["['odd.name'].x"]) | {"predicate": {"table": r"\p{L}+|a++"}},
        step("sql", query="SELECT * FROM input", output_mode="update"),
    ]
    plan = compile_steps(steps, "t")
    assert [one.label for one in plan.steps] == ["t[0] (filter)", "t[1] (mask_field)", "t[2] (sql)"]
    assert plan.output_mode == "update"


def test_too_many_steps_are_one_problem() -> None:
    assert problems(*[step("no_such_step")] * 201) == [
        ("", "sources.s.transforms: more than 200 steps")
    ]


def test_sql_steps_of_one_plan_agree_on_how_they_write() -> None:
    query = "SELECT * FROM input"
    [(path, _)] = problems(step("sql", query=query), step("sql", query=query, output_mode="update"))
    assert path == ""


def test_every_step_has_a_json_schema() -> None:
    schemas = step_schemas()
    assert {"mask_field", "rename_field", "sql", "outbox"} <= schemas.keys()
    for schema in schemas.values():
        definition = schema["$defs"][schema["$ref"].rpartition("/")[2]]
        assert definition["additionalProperties"] is False
        assert json.dumps(schema)
    mask = schemas["mask_field"]["$defs"]["MaskField"]
    assert mask["properties"]["salt"]["writeOnly"] is True
    assert mask["required"] == ["fields"]
