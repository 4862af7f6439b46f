from typing import Any

import pytest

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.queues.routing.header_table import HeaderTable


@pytest.mark.parametrize(
    ("arguments", "headers", "fits"),
    [
        ({"x-match": "all", "a": 1, "b": "x"}, {"a": 1, "b": "x", "c": 0}, True),
        ({"x-match": "all", "a": 1, "b": "x"}, {"a": 1}, False),
        ({"a": 1, "b": "x"}, {"a": 1, "b": "y"}, False),
        ({"x-match": "any", "a": 1, "b": "x"}, {"b": "x"}, True),
        ({"x-match": "any", "a": 1, "b": "x"}, {"b": "z"}, False),
        ({"x-match": "all"}, {}, True),
        ({"x-match": "any"}, {"a": 1}, False),
        ({"a": None}, {"a": "anything"}, True),
        ({"a": None}, {"b": "anything"}, False),
        ({"x-match": "all", "x-kind": 1}, {}, True),
        ({"x-match": "all-with-x", "x-kind": 1}, {}, False),
        ({"x-match": "any-with-x", "x-kind": 1}, {"x-kind": 1}, True),
        ({"a": True}, {"a": 1}, False),
        ({"a": "x"}, {"a": b"x"}, True),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]}, True),
    ],
)
def test_headers_match(arguments: dict[str, Any], headers: dict[str, Any], fits: bool) -> None:
    table: HeaderTable[str] = HeaderTable()
    table.add(arguments, "q")

    assert ("q" in table.match(headers)) is fits

    table.discard(arguments, "q")
    assert "q" not in table.match(headers)


def test_an_unknown_rule_is_refused() -> None:
    table: HeaderTable[str] = HeaderTable()

    with pytest.raises(InvalidRequest) as refused:
        table.add({"x-match": "some"}, "q")

    assert refused.value.code is ErrorCode.INVALID_BINDING


def test_a_binding_asks_for_a_bounded_number_of_headers() -> None:
    table: HeaderTable[str] = HeaderTable()

    with pytest.raises(InvalidRequest):
        table.add({f"h{number}": 1 for number in range(65)}, "q")
