"""Bodies of the routes about users, roles, tokens, rules and quotas. No secret is in any answer."""

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
    """Somebody who can log in, or who has roles."""

    name: str
    mechanisms: list[str]
    roles: list[str]


class MeAnswer(Struct, frozen=True):
    """Who the node takes the sender for, and what that rests on.

    ``roles`` are those of the principal and its groups; ``only_roles``: whatever these allow, the
    login is limited to as much of it as the named roles allow; ``until_ms`` is when it ends.
    """

    principal: str
    method: str
    groups: list[str]
    roles: list[str]
    only_roles: list[str] | None
    until_ms: int | None


class RuleBody(Struct, frozen=True, forbid_unknown_fields=True):
    """One rule of a role, in words."""

    resource: str
    operation: str
    name: str = "*"
    pattern: str = "literal"
    permission: str = "allow"


class RoleRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """What a role consists of."""

    rules: list[RuleBody]


class RoleAnswer(Struct, frozen=True):
    """A role and who has it."""

    name: str
    built_in: bool
    rules: list[RuleBody]
    members: list[str]


class BindingAnswer(Struct, frozen=True):
    """Somebody and all the roles he has."""

    principal: str
    roles: list[str]


class NewTokenRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """An API token to be made; without ``roles`` it may do what its user may."""

    name: str = ""
    user: str | None = None
    lifetime_ms: int | None = None
    roles: list[str] | None = None


class TokenAnswer(Struct, frozen=True):
    """An API token, without its text."""

    id: str
    owner: str
    name: str
    created_ms: int
    expires_ms: int | None
    roles: list[str] | None


class TokenCreated(TokenAnswer, frozen=True, kw_only=True):
    """A new API token with its text."""

    token: str


class AclBody(Struct, frozen=True, forbid_unknown_fields=True):
    """One access rule, in words; ``User:*`` is everybody."""

    principal: str
    resource: str
    operation: str
    name: str = "*"
    pattern: str = "literal"
    permission: str = "allow"
    host: str = "*"


class AclsRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Rules to be added: all of them, or none."""

    rules: Annotated[list[AclBody], Meta(min_length=1, max_length=RULES_PER_REQUEST_MAX)]


class AclsDeleted(Struct, frozen=True):
    """The rules that are gone."""

    deleted: list[AclBody]


class EntityBody(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Whom limits concern: a user, a client id, both together, or an address.

    A part that is null stands for everybody without limits of his own.
    """

    user: str | UnsetType | None = UNSET
    client_id: str | UnsetType | None = UNSET
    ip: str | UnsetType | None = UNSET


class QuotaBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits per second of one entity; in a request, null takes a limit away."""

    entity: EntityBody
    limits: dict[str, float | None]


class Deleted(Struct, frozen=True):
    """The deleted objects."""

    deleted: str


def number_of(kind: type[NumberT], word: str, *, least: int = 2) -> NumberT:
    """A word of the body as the number it stands for; words of filters only are below ``least``."""
    try:
        found = kind[word.upper().replace("-", "_")]
    except KeyError:
        found = None
    if found is None or found < least:
        known = ", ".join(each.name.lower() for each in kind if each >= least)
        raise bad_request(f"{word[:40]!r} is not a {kind.__name__}", remedy=f"known: {known}")
    return found


def in_full(principal: str) -> str:
    """``User:alice``, for which bodies and addresses may say ``alice``."""
    return principal if ":" in principal else f"{USER}:{principal}"


def word_of(number: IntEnum) -> str:
    """The word that bodies use for a number."""
    return number.name.lower()
