"""Steps that change topics, keys and headers, and predicates that choose records."""

import pytest
from pyspark.sql import SparkSession
from tests.integration.pipelines.transforms.outcomes import (
    DROPPED,
    Out,
    Record,
    outcome,
    outcomes,
    step,
)
from tests.integration.pipelines.transforms.test_step_cases import CREATED, DELETED


def outs(found: list[Out | str]) -> list[Out]:
    assert DROPPED not in found
    return [out for out in found if isinstance(out, Out)]


def test_the_first_route_that_fits_the_content_chooses_the_topic(spark: SparkSession) -> None:
    router = step(
        "content_router",
        routes=[
            {"field": "region", "value": "us", "topic": "orders.us"},
            {"field": "email", "pattern": ".*@big\\.com", "topic": "orders.{region}.big"},
            {"when": "amount > 100 and vip exists", "topic": "orders.vip"},
        ],
        default_topic="orders.other",
    )
    values = [
        '{"region":"us","email":"a@big.com"}',
        '{"region":"eu","email":"a@big.com","n":1.10}',
        '{"amount":101,"vip":null}',
        '{"amount":100,"vip":1}',
        None,
        '{"email":"a@big.com"}',
        '{"region":"no/topic","email":"a@big.com"}',
    ]
    found = outs(outcomes(spark, [router], [Record(value) for value in values]))
    assert [out.topic for out in found] == [
        "orders.us", "orders.eu.big", "orders.vip", "orders.other", "t", "t", "t",
    ]  # fmt: skip
    assert [out.text for out in found] == values
    assert ["invalid topic" in (out.error or "") for out in found] == [False] * 5 + [True] * 2


def test_several_routes_may_ask_for_the_same_field(spark: SparkSession) -> None:
    router = step(
        "content_router",
        routes=[
            {"field": "a.b", "value": "us", "topic": "text"},
            {"field": "a.b", "value": 1, "topic": "number"},
            {"field": "a.b", "value": "1", "topic": "digit"},
            {"field": "a.b", "pattern": "x+", "topic": "pattern"},
            {"field": "c", "value": True, "topic": "flag"},
            {"field": "c", "value": None, "topic": "nothing"},
        ],
    )
    values = [
        '{"a":{"b":"us"}}', '{"a":{"b":1.0}}', '{"a":{"b":"1"}}', '{"a":{"b":"xx"}}',
        '{"c":true}', '{"c":null}', '{"c":"true"}', '{"a":1}', None,
    ]  # fmt: skip
    found = outs(outcomes(spark, [router], [Record(value) for value in values]))
    assert [out.topic for out in found] == [
        "text", "number", "digit", "pattern", "flag", "nothing", "t", "t", "t",
    ]  # fmt: skip
    assert [out.text for out in found] == values


def test_topics_are_renamed_by_patterns_whatever_the_value_is(spark: SparkSession) -> None:
    routes = [
        {"pattern": r"cdc\.(\w+)\.(\w+)", "topic": "$2.of.$1"},
        {"pattern": "logs", "topic": "all-logs"},
    ]
    topics = ["cdc.shop.users", "logs", "logs2", None]
    records = [Record(b"\xff", topic=topic) for topic in topics]
    renamed = outs(outcomes(spark, [step("regex_router", routes=routes)], records))
    assert [out.topic for out in renamed] == ["users.of.shop", "all-logs", "logs2", None]
    fallback = step("regex_router", routes=routes, default_topic="rest")
    assert outs(outcomes(spark, [fallback], records))[2].topic == "rest"


def test_a_key_is_made_of_fields(spark: SparkSession) -> None:
    keyed = step("value_to_key", fields=["id", "a.x"])
    values = [
        '{"id":1,"a":{"x":"y"}}',
        '{"id":1}',
        CREATED,
        DELETED,
        None,
        '{"q":1}',
        '{"id":null}',
    ]
    found = outs(outcomes(spark, [keyed], [Record(value) for value in values]))
    one = b'{"id":1,"a.x":null}'
    assert [out.key for out in found] == [b'{"id":1,"a.x":"y"}', one, one, one, b"k", b"k", b"k"]
    assert [out.error is None for out in found] == [True] * 5 + [False] * 2
    assert [out.text for out in found] == values
    bare = step("value_to_key", fields=["id"], format="text")
    assert outcome(spark, [bare], Record('{"id":"abc"}')).key == b"abc"


def test_headers_become_fields(spark: SparkSession) -> None:
    headers = [("h", b"first"), ("h", b"last"), ("bin", b"\xff"), ("none", None)]
    record = Record('{"n":1}', headers=headers)
    copied = step("header_to_value", fields={"h": "deep.h", "bin": "b", "absent": "x"}, move=True)
    out = outcome(spark, [copied], record)
    assert out.text == '{"n":1,"deep":{"h":"last"},"b":"/w=="}'
    assert out.headers == (("none", None),)
    everything = step("header_to_value", all_headers_prefix="__")
    out = outcome(spark, [everything], record)
    assert out.text == '{"n":1,"__h":"last","__bin":"/w==","__none":null}'
    assert out.headers == tuple(headers)


def test_what_a_change_event_says_about_itself_becomes_fields(spark: SparkSession) -> None:
    names = ["source_type", "database", "schema", "table", "operation", "timestamp"]
    copied = step("header_to_value", fields={**{n: f"_{n}" for n in names}, "transaction_id": "tx"})
    out = outcome(spark, [copied, step("extract_new_record_state")], Record(CREATED))
    assert out.json == {
        "id": 1, "s": "x", "amount": 1.1, "_source_type": "postgresql", "_database": "shop",
        "_schema": "public", "_table": "users", "_operation": "c", "_timestamp": "5", "tx": "9",
    }  # fmt: skip


def test_outbox_rows_become_events(spark: SparkSession) -> None:
    row = '{"id":"e1","aggregatetype":"%s","aggregateid":7,"type":"Created","payload":%s,"at":1}'
    envelope = '{"before":null,"after":%s,"source":{"table":"outbox"},"op":"c"}'
    values = [
        envelope % (row % ("order", '"{\\"total\\":1.10}"')),
        row % ("order", '{"x":2}'),
        row % ("order", "null"),
        DELETED,
        None,
        row % ("no topic", "1"),
        '{"id":"e1"}',
    ]
    found = outcomes(spark, [step("outbox")], [Record(value) for value in values])
    text, tree, gone, deleted, tombstone, astray, odd = found
    for out, event in ((text, '{"total":1.10}'), (tree, '{"x":2}'), (gone, None)):
        assert isinstance(out, Out)
        assert (out.topic, out.key, out.text) == ("outbox.event.order", b"7", event)
        assert out.headers == (("id", b"e1"), ("eventType", b"Created"))
        assert out.error is None
    assert (deleted, tombstone) == (DROPPED, DROPPED)
    for out, value, said in ((astray, values[5], "invalid topic"), (odd, values[6], "no payload")):
        assert isinstance(out, Out)
        assert said in (out.error or "")
        assert (out.text, out.topic, out.key, out.headers) == (value, "t", b"k", None)


def test_steps_after_an_outbox_see_the_event(spark: SparkSession) -> None:
    row = '{"id":"e1","aggregatetype":"a","aggregateid":7,"type":"T","payload":"{\\"s\\":1}"}'
    out = outcome(spark, [step("outbox"), step("mask_field", fields=["s"])], Record(row))
    assert out.text == '{"s":"***"}'


@pytest.mark.parametrize(
    ("predicate", "applies"),
    [
        ({"table": "users"}, "cd"),
        ({"table": "user"}, ""),
        ({"table": "user.*", "schema": "public", "database": "shop"}, "cd"),
        ({"table": "users", "schema": "private"}, ""),
        ({"tables": ["orders", "u.*"], "schemas": ["x", "public"]}, "cd"),
        ({"operations": ["insert", "snapshot"]}, "c"),
        ({"operations": ["d", "tombstone"]}, "d"),
        ({"field_exists": "amount"}, "c"),
        ({"field_exists": "a.b"}, "p"),
        ({"field_value": {"field": "a.b", "value": 1}}, "p"),
        ({"field_value": {"field": "id", "value": 1.0}}, "cd"),
        ({"topic": "t"}, "cdp"),
        ({"topics": ["x", "t.+"]}, ""),
        ({"table": "users", "operations": ["insert"], "field_exists": "id"}, "c"),
        ({"table": "users", "operations": ["insert"], "negate": True}, "dp"),
    ],
    ids=str,
)
def test_a_step_applies_where_its_predicate_holds(
    spark: SparkSession, predicate: dict[str, object], applies: str
) -> None:
    records = {"c": CREATED, "d": DELETED, "p": '{"s":"x","a":{"b":1.0},"n":1.10}', "t": None}
    masked = [step("mask_field", predicate, fields=["s"])]
    found = outs(outcomes(spark, masked, [Record(value) for value in records.values()]))
    for (name, value), out in zip(records.items(), found, strict=True):
        if name in applies:
            assert '"s":"***"' in str(out.text)
        else:
            assert out.text == value


def test_a_malformed_value_fails_only_where_somebody_needs_to_read_it(spark: SparkSession) -> None:
    mask = step("mask_field", {"topic": "users"}, fields=["s"])
    route = step("regex_router", routes=[{"pattern": "t", "topic": "u"}])
    records = [Record("{bad"), Record("{bad", topic="users")]
    passed, failed = outs(outcomes(spark, [mask, route], records))
    assert (passed.topic, passed.text, passed.error) == ("u", "{bad", None)
    assert (failed.topic, failed.error, failed.step) == (
        "users", "the value is not JSON", "transforms[0] (mask_field)",
    )  # fmt: skip


def test_a_dead_letter_is_the_record_as_it_came(spark: SparkSession) -> None:
    steps = [
        step("replace_field", renames={"id": "n"}),
        step("value_to_key", fields=["n"]),
        step("regex_router", routes=[{"pattern": "t", "topic": "u"}]),
        step("header_to_value", all_headers_prefix="h_", move=True),
        step("filter", condition="n = never"),
        {**step("cast", specs={"s": "integer"}), "name": "numbers"},
    ]
    steps.append(steps.pop(4))
    record = Record('{"id":1.10,"s":"x"}', headers=[("a", b"b")])
    out = outcome(spark, steps, record)
    assert out == Out(
        value=b'{"id":1.10,"s":"x"}',
        topic="t",
        key=b"k",
        headers=(("a", b"b"),),
        error='s cannot be converted: "x"',
        step="transforms[4] (numbers)",
    )
