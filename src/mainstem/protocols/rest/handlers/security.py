"""Users, roles and API tokens: list, describe, create, change, delete."""

from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import Response

from mainstem.broker.api.security import ApiToken, RoleRule, Security
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.protocols.rest.access import caller_of
from mainstem.protocols.rest.handler_context import HandlerContext
from mainstem.protocols.rest.incoming import check_json, decode, read_body
from mainstem.protocols.rest.responses import PacedAnswer, json_answer
from mainstem.protocols.rest.schemas.security import (
    BindingAnswer,
    Deleted,
    MeAnswer,
    NewTokenRequest,
    PasswordRequest,
    RoleAnswer,
    RoleRequest,
    RuleBody,
    TokenAnswer,
    TokenCreated,
    UserAnswer,
    in_full,
    number_of,
    word_of,
)
from mainstem.security.authentication.login_service import PLAIN
from mainstem.security.authorisation.acl import Operation, PatternType, Permission, ResourceType
from mainstem.security.authorisation.roles import BUILT_IN
from mainstem.security.principals import USER, parse_principal


async def list_users(site: HandlerContext, request: Request) -> Response:
    """GET /v1/users."""
    security = site.broker.security
    known = {parse_principal(principal) for principal in security.roles.bindings()}
    named = {principal.name for principal in known if principal.kind == USER}
    return PacedAnswer(
        site.held, [_user(security, name) for name in sorted({*security.users.all(), *named})]
    )


async def get_user(site: HandlerContext, request: Request) -> Response:
    """GET /v1/users/{name}."""
    name = request.path_params["name"]
    security = site.broker.security
    if name not in security.users.all() and f"{USER}:{name}" not in security.roles.bindings():
        raise InvalidRequest(ErrorCode.UNKNOWN_RESOURCE, "there is no such user", subject=name)
    return json_answer(_user(security, name))


async def put_user(site: HandlerContext, request: Request) -> Response:
    """PUT /v1/users/{name}: create a user (201), or set a new password (200)."""
    check_json(request)
    wanted = decode(await read_body(site, request), PasswordRequest)
    name = request.path_params["name"]
    security = site.broker.security
    is_new = name not in security.users.all()
    await security.users.set_password(caller_of(request), name, wanted.password)
    return json_answer(_user(security, name), 201 if is_new else 200)


async def delete_user(site: HandlerContext, request: Request) -> Response:
    """DELETE /v1/users/{name}."""
    name = request.path_params["name"]
    await site.broker.security.users.delete(caller_of(request), name)
    return json_answer(Deleted(name))


async def get_me(site: HandlerContext, request: Request) -> Response:
    """GET /v1/me."""
    identity = caller_of(request).identity
    bindings = site.broker.security.roles.bindings()
    roles = {role for name in identity.names for role in bindings.get(name, ())}
    limited = identity.only_roles
    return json_answer(
        MeAnswer(
            principal=str(identity.principal),
            method=identity.method,
            groups=list(identity.groups),
            roles=sorted(roles),
            only_roles=None if limited is None else list(limited),
            until_ms=identity.until_ms,
        )
    )


async def put_my_password(site: HandlerContext, request: Request) -> Response:
    """PUT /v1/me/password: requires a login with the current password.

    A stolen token or certificate must not be enough to set a password.
    """
    caller = caller_of(request)
    if caller.identity.method != PLAIN:
        raise InvalidRequest(
            ErrorCode.NOT_AUTHORIZED,
            "changing a password requires a login with the current password",
            subject=str(caller.identity.principal),
            remedy="log in with name and password, or ask an administrator",
        )
    check_json(request)
    wanted = decode(await read_body(site, request), PasswordRequest)
    name = caller.identity.principal.name
    await site.broker.security.users.set_password(caller, name, wanted.password)
    return json_answer(_user(site.broker.security, name))


async def list_roles(site: HandlerContext, request: Request) -> Response:
    """GET /v1/roles."""
    security = site.broker.security
    return PacedAnswer(site.held, [_role(security, name) for name in security.roles.all()])


async def get_role(site: HandlerContext, request: Request) -> Response:
    """GET /v1/roles/{name}."""
    name = request.path_params["name"]
    security = site.broker.security
    if name not in security.roles.all():
        raise InvalidRequest(ErrorCode.UNKNOWN_RESOURCE, "there is no such role", subject=name)
    return json_answer(_role(security, name))


async def put_role(site: HandlerContext, request: Request) -> Response:
    """PUT /v1/roles/{name}: create a role (201), or replace its rules (200)."""
    check_json(request)
    wanted = decode(await read_body(site, request), RoleRequest)
    name = request.path_params["name"]
    rules = [_rule(rule) for rule in wanted.rules]
    security = site.broker.security
    is_new = name not in security.roles.all()
    await security.roles.set(caller_of(request), name, rules)
    return json_answer(_role(security, name), 201 if is_new else 200)


async def delete_role(site: HandlerContext, request: Request) -> Response:
    """DELETE /v1/roles/{name}."""
    name = request.path_params["name"]
    await site.broker.security.roles.delete(caller_of(request), name)
    return json_answer(Deleted(name))


async def bind_role(site: HandlerContext, request: Request) -> Response:
    """PUT /v1/roles/{name}/members/{principal}: grant a role."""
    return await _bound(site, request, bound=True)


async def unbind_role(site: HandlerContext, request: Request) -> Response:
    """DELETE /v1/roles/{name}/members/{principal}: revoke a role."""
    return await _bound(site, request, bound=False)


async def list_tokens(site: HandlerContext, request: Request) -> Response:
    """GET /v1/tokens: the caller's own tokens; all with DESCRIBE on the cluster."""
    found = site.broker.security.api_tokens.visible_to(caller_of(request))
    return PacedAnswer(site.held, [_token(token) for token in found])


async def get_token(site: HandlerContext, request: Request) -> Response:
    """GET /v1/tokens/{id}: without the secret; 404 if the caller may not see it."""
    token_id = request.path_params["id"]
    for token in site.broker.security.api_tokens.visible_to(caller_of(request)):
        if token.id == token_id:
            return json_answer(_token(token))
    raise InvalidRequest(ErrorCode.UNKNOWN_TOKEN, "there is no such token", subject=token_id)


async def create_token(site: HandlerContext, request: Request) -> Response:
    """POST /v1/tokens: the only response that has the secret."""
    check_json(request)
    wanted = decode(await read_body(site, request), NewTokenRequest)
    owner = wanted.user and f"{USER}:{wanted.user}"
    token, text = await site.broker.security.api_tokens.create(
        caller_of(request),
        name=wanted.name,
        owner=owner,
        lifetime_ms=wanted.lifetime_ms,
        roles=None if wanted.roles is None else tuple(wanted.roles),
    )
    return json_answer(TokenCreated(token=text, **asdict(_token(token))), 201)


async def delete_token(site: HandlerContext, request: Request) -> Response:
    """DELETE /v1/tokens/{id}."""
    token_id = request.path_params["id"]
    await site.broker.security.api_tokens.delete(caller_of(request), token_id)
    return json_answer(Deleted(token_id))


async def _bound(site: HandlerContext, request: Request, *, bound: bool) -> Response:
    name, principal = request.path_params["name"], in_full(request.path_params["principal"])
    security = site.broker.security
    await security.roles.bind(caller_of(request), principal, name, bound=bound)
    return json_answer(BindingAnswer(principal, list(security.roles.bindings().get(principal, ()))))


def _user(security: Security, name: str) -> UserAnswer:
    kept = security.users.all().get(name)
    mechanisms = [each.mechanism for each in kept.scram] if kept is not None else []
    return UserAnswer(name, mechanisms, list(security.roles.bindings().get(f"{USER}:{name}", ())))


def _role(security: Security, name: str) -> RoleAnswer:
    members = sorted(who for who, roles in security.roles.bindings().items() if name in roles)
    rules = [_shown(rule) for rule in security.roles.all()[name]]
    return RoleAnswer(name, built_in=name in BUILT_IN, rules=rules, members=members)


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
        number_of(PatternType, body.pattern, least=PatternType.LITERAL),
        number_of(Permission, body.permission),
    )


def _shown(rule: RoleRule) -> RuleBody:
    return RuleBody(
        resource=word_of(rule.resource_type),
        operation=word_of(rule.operation),
        name=rule.name,
        pattern=word_of(rule.pattern_type),
        permission=word_of(rule.permission),
    )
