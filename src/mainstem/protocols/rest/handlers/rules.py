"""Access rules over HTTP: list, add, remove. A rule is changed by deleting and adding it."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from mainstem.broker.api.security import AclFilter, AclRule
from mainstem.protocols.rest.access import caller_of
from mainstem.protocols.rest.errors import bad_request
from mainstem.protocols.rest.handler_context import HandlerContext
from mainstem.protocols.rest.incoming import check_json, decode, read_body
from mainstem.protocols.rest.responses import PacedAnswer, json_answer
from mainstem.protocols.rest.routing.parameters import ChoiceParameter, TextParameter
from mainstem.protocols.rest.schemas.security import (
    AclBody,
    AclsDeleted,
    AclsRequest,
    in_full,
    number_of,
    word_of,
)
from mainstem.security.authorisation.acl import (
    Operation,
    PatternType,
    Permission,
    ResourceType,
    check_rule,
)

_ANY: Final = 1

PRINCIPAL = TextParameter(
    "principal", "Rules for this principal: User:alice, or alice for short; Group:ops."
)
RESOURCE = TextParameter(
    "resource",
    "Rules about this kind: topic, group, cluster, transactional_id, delegation_token, user.",
)
NAME = TextParameter("name", "Rules about this name.")
PATTERN = TextParameter(
    "pattern",
    "literal, prefixed or glob; match finds all rules that apply to the name.",
)
OPERATION = TextParameter("operation", "Rules about this operation, such as read.")
PERMISSION = TextParameter("permission", "allow or deny.")
HOST = TextParameter("host", "Rules for this address.")
EVERY = ChoiceParameter(
    "all", "Must be true to delete every rule, if no other parameter is given.",
    ("false", "true"),
)  # fmt: skip

FILTER = (PRINCIPAL, RESOURCE, NAME, PATTERN, OPERATION, PERMISSION, HOST)


async def list_acls(site: HandlerContext, request: Request) -> Response:
    """GET /v1/acls."""
    found = site.broker.security.rules.matching(_filter(request))
    return PacedAnswer(site.held, [_shown(rule) for rule in found])


async def create_acls(site: HandlerContext, request: Request) -> Response:
    """POST /v1/acls: add all rules or none; existing rules are kept."""
    check_json(request)
    wanted = decode(await read_body(site, request), AclsRequest)
    rules = [_rule(rule) for rule in wanted.rules]
    await site.broker.security.rules.create(caller_of(request), rules)
    return json_answer([_shown(rule) for rule in rules], 201)


async def delete_acls(site: HandlerContext, request: Request) -> Response:
    """DELETE /v1/acls: delete the rules that match the query."""
    wanted = _filter(request)
    if wanted == AclFilter() and EVERY.of(request) != "true":
        raise bad_request(
            "this would delete every rule", remedy="name the rules to delete, or set all=true"
        )
    [found] = await site.broker.security.rules.delete(caller_of(request), [wanted])
    return PacedAnswer(site.held, AclsDeleted([_shown(rule) for rule in found]))


def _filter(request: Request) -> AclFilter:
    principal = PRINCIPAL.of(request)
    return AclFilter(
        number_of(ResourceType, RESOURCE.of(request) or "any", least=_ANY),
        number_of(PatternType, PATTERN.of(request) or "any", least=_ANY),
        NAME.of(request),
        None if principal is None else in_full(principal),
        HOST.of(request),
        number_of(Operation, OPERATION.of(request) or "any", least=_ANY),
        number_of(Permission, PERMISSION.of(request) or "any", least=_ANY),
    )


def _rule(body: AclBody) -> AclRule:
    rule = AclRule(
        number_of(ResourceType, body.resource),
        number_of(PatternType, body.pattern, least=PatternType.LITERAL),
        body.name,
        in_full(body.principal),
        body.host,
        number_of(Operation, body.operation),
        number_of(Permission, body.permission),
    )
    check_rule(rule)
    return rule


def _shown(rule: AclRule) -> AclBody:
    return AclBody(
        principal=rule.principal,
        resource=word_of(rule.resource_type),
        operation=word_of(rule.operation),
        name=rule.name,
        pattern=word_of(rule.pattern_type),
        permission=word_of(rule.permission),
        host=rule.host,
    )
