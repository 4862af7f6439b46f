"""Users, roles and API tokens: who may log in, and what the names of rights stand for."""

from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import Response

from mainstem.broker.security_api import ApiToken, RoleRule
from mainstem.protocols.rest.access import caller_of
from mainstem.protocols.rest.answers import json_answer
from mainstem.protocols.rest.incoming import check_json, decode, read_body
from mainstem.protocols.rest.security_bodies import (
    Deleted,
    NewTokenRequest,
    PasswordRequest,
    RoleAnswer,
    RoleRequest,
    RuleBody,
    TokenAnswer,
    TokenCreated,
    UserAnswer,
    number_of,
)
from mainstem.protocols.rest.site import Site
from mainstem.security.acl import Operation, PatternType, Permission, ResourceType
from mainstem.security.principals import USER
from mainstem.security.roles import BUILT_IN


async def list_users(site: Site, request: Request) -> Response:
    """GET /v1/users."""
    security = site.broker.security
    users, bindings = security.users(), security.bindings()
    named = {principal.removeprefix(f"{USER}:") for principal in bindings}
    return json_answer(
        [
            UserAnswer(
                name=name,
                mechanisms=[each.mechanism for each in users[name].scram] if name in users else [],
                roles=list(bindings.get(f"{USER}:{name}", ())),
            )
            for name in sorted({*users, *named})
        ]
    )


async def put_user(site: Site, request: Request) -> Response:
    """PUT /v1/users/{name}: make a user, or give one a new password."""
    check_json(request)
    wanted = decode(await read_body(site, request), PasswordRequest)
    name = request.path_params["name"]
    security = site.broker.security
    await security.set_password(caller_of(request), name, wanted.password)
    kept = security.users()[name]
    roles = list(security.bindings().get(f"{USER}:{name}", ()))
    return json_answer(UserAnswer(name, [each.mechanism for each in kept.scram], roles))


async def delete_user(site: Site, request: Request) -> Response:
    """DELETE /v1/users/{name}."""
    name = request.path_params["name"]
    await site.broker.security.delete_user(caller_of(request), name)
    return json_answer(Deleted(name))


async def list_roles(site: Site, request: Request) -> Response:
    """GET /v1/roles."""
    security = site.broker.security
    bindings = security.bindings()
    return json_answer(
        [
            RoleAnswer(
                name=name,
                built_in=name in BUILT_IN,
                rules=[_shown(rule) for rule in rules],
                members=sorted(who for who, roles in bindings.items() if name in roles),
            )
            for name, rules in security.roles().items()
        ]
    )


async def put_role(site: Site, request: Request) -> Response:
    """PUT /v1/roles/{name}: make a role, or replace its rules."""
    check_json(request)
    wanted = decode(await read_body(site, request), RoleRequest)
    name = request.path_params["name"]
    rules = [_rule(rule) for rule in wanted.rules]
    security = site.broker.security
    await security.set_role(caller_of(request), name, rules)
    members = sorted(who for who, roles in security.bindings().items() if name in roles)
    return json_answer(RoleAnswer(name, built_in=False, rules=wanted.rules, members=members))


async def delete_role(site: Site, request: Request) -> Response:
    """DELETE /v1/roles/{name}."""
    name = request.path_params["name"]
    await site.broker.security.delete_role(caller_of(request), name)
    return json_answer(Deleted(name))


async def bind_role(site: Site, request: Request) -> Response:
    """PUT /v1/roles/{name}/members/{principal}: give a role."""
    name, principal = request.path_params["name"], _principal(request)
    await site.broker.security.bind_role(caller_of(request), principal, name, bound=True)
    return json_answer(UserAnswer(principal, [], [name]))


async def unbind_role(site: Site, request: Request) -> Response:
    """DELETE /v1/roles/{name}/members/{principal}: take a role."""
    name, principal = request.path_params["name"], _principal(request)
    await site.broker.security.bind_role(caller_of(request), principal, name, bound=False)
    return json_answer(Deleted(principal))


async def list_tokens(site: Site, request: Request) -> Response:
    """GET /v1/tokens: one's own, or all for those who may see the cluster."""
    found = site.broker.security.api_tokens(caller_of(request))
    return json_answer([_token(token) for token in found])


async def create_token(site: Site, request: Request) -> Response:
    """POST /v1/tokens: the only time that its text is told."""
    check_json(request)
    wanted = decode(await read_body(site, request), NewTokenRequest)
    owner = wanted.user and f"{USER}:{wanted.user}"
    token, text = await site.broker.security.create_api_token(
        caller_of(request),
        name=wanted.name,
        owner=owner,
        lifetime_ms=wanted.lifetime_ms,
        roles=None if wanted.roles is None else tuple(wanted.roles),
    )
    return json_answer(TokenCreated(token=text, **asdict(_token(token))), 201)


async def delete_token(site: Site, request: Request) -> Response:
    """DELETE /v1/tokens/{id}."""
    token_id = request.path_params["id"]
    await site.broker.security.delete_api_token(caller_of(request), token_id)
    return json_answer(Deleted(token_id))


def _principal(request: Request) -> str:
    """``User:alice``, or ``alice`` for short."""
    name: str = request.path_params["principal"]
    return name if ":" in name else f"{USER}:{name}"


def _token(token: ApiToken) -> TokenAnswer:
    return TokenAnswer(
        id=token.id,
        owner=token.owner,
        name=token.name,
        created_ms=token.created_ms,
        expires_ms=token.expires_ms,
        roles=None if token.roles is None else list(token.roles),
    )


def _rule(body: RuleBody) -> RoleRule:
    return RoleRule(
        number_of(ResourceType, body.resource),
        number_of(Operation, body.operation),
        body.name,
        number_of(PatternType, body.pattern),
        number_of(Permission, body.permission),
    )


def _shown(rule: RoleRule) -> RuleBody:
    return RuleBody(
        resource=rule.resource_type.name.lower(),
        operation=rule.operation.name.lower(),
        name=rule.name,
        pattern=rule.pattern_type.name.lower(),
        permission=rule.permission.name.lower(),
    )
