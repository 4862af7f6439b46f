"""Bodies of the routes about users, roles and tokens."""

from enum import IntEnum
from typing import TypeVar

from msgspec import Struct

from mainstem.protocols.rest.errors import bad_request

NumberT = TypeVar("NumberT", bound=IntEnum)


class PasswordRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A new password."""

    password: str


class UserAnswer(Struct, frozen=True):
    """Somebody who can log in, or who has roles."""

    name: str
    mechanisms: list[str]
    roles: list[str]


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


class Deleted(Struct, frozen=True):
    """What is gone."""

    deleted: str


def number_of(kind: type[NumberT], word: str) -> NumberT:
    """A word of the body as the number it stands for."""
    try:
        return kind[word.upper().replace("-", "_")]
    except KeyError:
        known = ", ".join(each.name.lower() for each in kind if each > 1)
        raise bad_request(f"{word[:40]!r} is not a {kind.__name__}", remedy=known) from None
