"""The OpenAPI document describes what is served: no more, no less."""

import re
from typing import Any

import msgspec
from tests.unit.protocols.rest.counter import Rest

from mainstem.protocols.rest.routing.routes import ADDRESSES
from mainstem.protocols.rest.schemas.topics_and_groups import (
    BrokerAnswer,
    GroupAnswer,
    GroupLine,
    MessageAnswer,
    MessagesStored,
    TopicAnswer,
    TopicLine,
)

METHODS = {"get", "put", "post", "delete"}


async def document(rest: Rest) -> dict[str, Any]:
    answer: dict[str, Any] = (await rest.http.get("/openapi.json")).json()
    return answer


def references(node: object) -> set[str]:
    if isinstance(node, dict):
        found = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return found.union(*(references(value) for value in node.values()))
    if isinstance(node, list):
        return set().union(*(references(value) for value in node))
    return set()


async def test_every_address_and_method_is_described_and_nothing_else(rest: Rest) -> None:
    described = {
        (path, method)
        for path, item in (await document(rest))["paths"].items()
        for method in set(item) & METHODS
    }
    served = {
        (re.sub(r":\w+}", "}", address.path), method.lower())
        for address in ADDRESSES
        for method in address.operations
    }
    assert described == served | {("/openapi.json", "get")}


async def test_every_reference_leads_somewhere_and_names_are_unique(rest: Rest) -> None:
    body = await document(rest)
    assert body["openapi"] == "3.1.0"
    schemas = body["components"]["schemas"]
    assert references(body) == {f"#/components/schemas/{name}" for name in schemas}
    names = [
        operation["operationId"]
        for item in body["paths"].values()
        for method, operation in item.items()
        if method in METHODS
    ]
    assert len(names) == len(set(names))


async def test_every_parameter_in_a_path_is_declared(rest: Rest) -> None:
    for path, item in (await document(rest))["paths"].items():
        declared = {p["name"] for p in item.get("parameters", ()) if p["in"] == "path"}
        assert declared == set(re.findall(r"{(\w+)}", path))


async def test_every_operation_says_how_it_refuses(rest: Rest) -> None:
    for item in (await document(rest))["paths"].values():
        for method in set(item) & METHODS:
            statuses = set(item[method]["responses"])
            assert {"400", "405", "500", "503"} <= statuses
            assert statuses & {"200", "201"}


async def test_answers_fit_the_types_that_describe_them(rest: Rest) -> None:
    stored = await rest.post("t", {"key": "k", "value": "v", "headers": {"a": "b"}})
    rest.counter.add_group("g", "t", 0)
    assert msgspec.json.decode(stored.content, type=MessagesStored).record_count == 1
    for path, kind in (
        ("/v1/broker", BrokerAnswer),
        ("/v1/topics", list[TopicLine]),
        ("/v1/topics/t", TopicAnswer),
        ("/v1/topics/t/messages", list[MessageAnswer]),
        ("/v1/groups", list[GroupLine]),
        ("/v1/groups/g", GroupAnswer),
    ):
        answer = await rest.http.get(path)
        decoded = msgspec.json.decode(answer.content, type=kind)
        assert msgspec.json.encode(decoded) + b"\n" == answer.content
