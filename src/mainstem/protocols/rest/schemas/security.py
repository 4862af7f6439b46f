"""Bodies of the routes about users, roles, tokens, rules and quotas. Responses have no secrets."""

from enum import IntEnum
from typing import Annotated, Final, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from mainstem.protocols.rest.errors import bad_request
from mainstem.security.principals import USER

RULES_PER_REQUEST_MAX: Final = 1_000

NumberT = TypeVar("NumberT", bound=IntEnum)


class PasswordRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A new password."""

    password: str


class UserAnswer(Struct, frozen=True):
    """A user that has a password or roles."""

    name: str
    mechanisms: list[str]
    roles: list[str]


class MeAnswer(Struct, frozen=True):
    """The authenticated user, and how it was authenticated.

    ``roles`` are those of the principal and its groups. If ``only_roles`` is set, the login has
    only rights that these roles have as well. ``until_ms`` is when the login expires.
    """

    principal: str
    method: str
    groups: list[str]
    roles: list[str]
    only_roles: list[str] | None
    until_ms: int | None


class RuleBody(Struct, frozen=True, forbid_unknown_fields=True):
    """One rule of a role."""

    resource: str
    operation: str
    name: str = "*"
    pattern: str = "literal"
    permission: str = "allow"


class RoleRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The rules of a role."""

    rules: list[RuleBody]


class RoleAnswer(Struct, frozen=True):
    """A role and its members."""

    name: str
    built_in: bool
    rules: list[RuleBody]
    members: list[str]


class BindingAnswer(Struct, frozen=True):
    """A principal and all its roles."""

    principal: str
    roles: list[str]


class NewTokenRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """An API token to create; without ``roles`` it has all rights of its user."""

    name: str = ""
    user: str | None = None
    lifetime_ms: int | None = None
    roles: list[str] | None = None


class TokenAnswer(Struct, frozen=True):
    """An API token, without its secret."""

    id: str
    owner: str
    name: str
    created_ms: int
    expires_ms: int | None
    roles: list[str] | None


class TokenCreated(TokenAnswer, frozen=True, kw_only=True):
    """A new API token with its secret."""

    token: str


class AclBody(Struct, frozen=True, forbid_unknown_fields=True):
    """One access rule; ``User:*`` is every user."""

    principal: str
    resource: str
    operation: str
    name: str = "*"
    pattern: str = "literal"
    permission: str = "allow"
    host: str = "*"


class AclsRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Rules to add: all of them, or none."""

    rules: Annotated[list[AclBody], Meta(min_length=1, max_length=RULES_PER_REQUEST_MAX)]


class AclsDeleted(Struct, frozen=True):
    """The deleted rules."""

    deleted: list[AclBody]


class EntityBody(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """To what limits apply: a user, a client id, both together, or an address.

    A part that is null is the default for all entities without a limit of their own.
    """

    user: str | UnsetType | None = UNSET
    client_id: str | UnsetType | None = UNSET
    ip: str | UnsetType | None = UNSET


class QuotaBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits per second of one entity; in a request, null removes a limit."""

    entity: EntityBody
    limits: dict[str, float | None]


class Deleted(Struct, frozen=True):
    """The deleted objects."""

    deleted: str


def number_of(kind: type[NumberT], word: str, *, least: int = 2) -> NumberT:
    """Parse an enum name of the body; values below ``least`` are allowed in filters only."""
    try:
        found = kind[word.upper().replace("-", "_")]
    except KeyError:
        found = None
    if found is None or found < least:
        known = ", ".join(each.name.lower() for each in kind if each >= least)
        raise bad_request(f"{word[:40]!r} is not a {kind.__name__}", remedy=f"known: {known}")
    return found


def in_full(principal: str) -> str:
    """``User:alice`` for ``alice``, the short form in bodies and paths."""
    return principal if ":" in principal else f"{USER}:{principal}"


def word_of(number: IntEnum) -> str:
    """The name that bodies use for an enum value."""
    return number.name.lower()
