"""Limits of users, client ids and addresses over HTTP: list, set, remove."""

from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from mainstem.broker.api.security import Entity, QuotaEntry
from mainstem.protocols.rest.access import caller_of
from mainstem.protocols.rest.errors import HttpError, Problem, bad_request
from mainstem.protocols.rest.handler_context import HandlerContext
from mainstem.protocols.rest.incoming import check_json, decode, read_body
from mainstem.protocols.rest.responses import PacedAnswer, json_answer
from mainstem.protocols.rest.routing.parameters import TextParameter
from mainstem.protocols.rest.schemas.security import EntityBody, QuotaBody
from mainstem.security.quotas import ADDRESS, CLIENT, USER, entity_of

OF_USER = TextParameter("user", "Limits of this user.")
OF_CLIENT = TextParameter("client_id", "Limits of this client id.")
OF_ADDRESS = TextParameter("ip", "Limits of this address.")
OF_DEFAULT = TextParameter(
    "default",
    "user, client_id, ip, or user,client_id: the default for entities without their own limit.",
)

ENTITY = (OF_USER, OF_CLIENT, OF_ADDRESS, OF_DEFAULT)

_KINDS = {"user": USER, "client_id": CLIENT, "ip": ADDRESS}
_PARTS = {kind: part for part, kind in _KINDS.items()}


async def list_quotas(site: HandlerContext, request: Request) -> Response:
    """GET /v1/quotas: all, or those that match the query."""
    wanted = set(_asked(request))
    found = [entry for entry in site.broker.security.limits.all() if wanted <= set(entry.entity)]
    return PacedAnswer(site.held, [_shown(entry) for entry in found])


async def put_quota(site: HandlerContext, request: Request) -> Response:
    """PUT /v1/quotas: set or remove limits of one entity; others are unchanged."""
    check_json(request)
    wanted = decode(await read_body(site, request), QuotaBody)
    if not wanted.limits:
        raise bad_request("the body has no limits", remedy="see /openapi.json")
    given = ((_KINDS[name], getattr(wanted.entity, name)) for name in _KINDS)
    entity = entity_of((kind, name) for kind, name in given if name is not UNSET)
    await site.broker.security.limits.alter(caller_of(request), entity, wanted.limits)
    return json_answer(_shown(_found(site, entity)))


async def delete_quota(site: HandlerContext, request: Request) -> Response:
    """DELETE /v1/quotas: remove all limits of one entity."""
    entity = entity_of(_asked(request))
    entry = _found(site, entity)
    if not entry.limits:
        raise HttpError(404, Problem("UNKNOWN_RESOURCE", "this entity has no limits", str(entity)))
    changes = dict.fromkeys(entry.limits)
    await site.broker.security.limits.alter(caller_of(request), entity, changes)
    return json_answer(_shown(entry))


def _asked(request: Request) -> list[tuple[str, str | None]]:
    """The parts of an entity that the query names."""
    parts: list[tuple[str, str | None]] = []
    for parameter in (OF_USER, OF_CLIENT, OF_ADDRESS):
        name = parameter.of(request)
        if name is not None:
            parts.append((_KINDS[parameter.name], name))
    text = OF_DEFAULT.of(request)
    for word in text.split(",") if text is not None else ():
        if word not in _KINDS:
            raise OF_DEFAULT.refused(word, ", ".join(_KINDS))
        parts.append((_KINDS[word], None))
    return parts


def _found(site: HandlerContext, entity: Entity) -> QuotaEntry:
    entries = site.broker.security.limits.all()
    return next((each for each in entries if each.entity == entity), QuotaEntry(entity, {}))


def _shown(entry: QuotaEntry) -> QuotaBody:
    parts = {_PARTS[kind]: name for kind, name in entry.entity}
    return QuotaBody(EntityBody(**parts), dict(sorted(entry.limits.items())))
