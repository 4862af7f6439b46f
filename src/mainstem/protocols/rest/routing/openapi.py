"""The OpenAPI 3.1 document, written from the table of routes and the types of their bodies."""

import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from mainstem.protocols.rest.errors import Problem
from mainstem.protocols.rest.routing.operation import Address, RestOperation
from mainstem.protocols.rest.routing.parameters import Schema

_IN_PATH = re.compile(r"\{(\w+)(?::\w+)?\}")
_ALWAYS = (400, 401, 403, 405, 429, 500, 503)
_SCHEMES: Schema = {
    "password": {"type": "http", "scheme": "basic"},
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API token, or a JSON web token of the configured issuer.",
    },
    "certificate": {"type": "mutualTLS"},
}
_RAW_BODY: Schema = {"type": "string", "description": "The value of one message, unencoded."}


def document(addresses: Iterable[Address], version: str) -> Schema:
    """Return the OpenAPI document of these addresses."""
    listed = list(addresses)
    types = [
        kind for address in listed for op in address.operations.values() for kind in _types(op)
    ]
    types.append(Problem)
    schemas, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    by_type = {repr(kind): schema for kind, schema in zip(types, schemas, strict=True)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Mainstem",
            "version": version,
            "description": "Topics, messages, groups, rights and the state of one node.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": {
            _IN_PATH.sub(r"{\1}", address.path): _path(address, by_type) for address in listed
        },
        "components": {"schemas": components, "securitySchemes": _SCHEMES},
        # The empty scheme comes first: a listener may require no login.
        "security": [{}, *({name: []} for name in _SCHEMES)],
    }


def _types(operation: RestOperation) -> list[Any]:
    answers = [] if isinstance(operation.answer, dict) else [operation.answer]
    return [*answers, *operation.body]


def _path(address: Address, schemas: Mapping[str, Schema]) -> Schema:
    item: Schema = {
        method.lower(): _operation(operation, schemas)
        for method, operation in address.operations.items()
    }
    names = _IN_PATH.findall(address.path)
    if names:
        item["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in names
        ]
    return item


def _operation(operation: RestOperation, schemas: Mapping[str, Schema]) -> Schema:
    answer = operation.answer
    schema = answer if isinstance(answer, dict) else schemas[repr(answer)]
    responses: Schema = {
        str(operation.status): {
            "description": HTTPStatus(operation.status).phrase,
            "content": {operation.media_type: {"schema": schema}},
        }
    }
    for status in sorted({*_ALWAYS, *operation.refusals}):
        responses[str(status)] = {
            "description": HTTPStatus(status).phrase,
            "content": {"application/json": {"schema": schemas[repr(Problem)]}},
        }
    described: Schema = {
        "operationId": operation.handler.__name__,
        "summary": operation.summary,
        "responses": responses,
    }
    if operation.parameters:
        described["parameters"] = [
            {
                "name": parameter.name,
                "in": "query",
                "description": parameter.description,
                "schema": parameter.schema(),
            }
            for parameter in operation.parameters
        ]
    if operation.body:
        described["requestBody"] = {"content": _body(operation, schemas)}
    return described


def _body(operation: RestOperation, schemas: Mapping[str, Schema]) -> Schema:
    kinds = [schemas[repr(kind)] for kind in operation.body]
    content: Schema = {
        "application/json": {"schema": kinds[0] if len(kinds) == 1 else {"oneOf": kinds}}
    }
    if any(parameter.name == "key" for parameter in operation.parameters):
        content["text/plain"] = {"schema": _RAW_BODY}
        content["application/octet-stream"] = {"schema": _RAW_BODY}
    return content
