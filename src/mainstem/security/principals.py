"""Principals, and the identity that a login establishes."""

from typing import Final, NamedTuple

from msgspec import Struct

from mainstem.model.errors import ErrorCode, InvalidRequest

USER: Final = "User"
GROUP: Final = "Group"
ROLE: Final = "Role"
NAME_LENGTH_MAX: Final = 255


class Principal(NamedTuple):
    """The subject of a rule: ``User:alice``, ``Group:ops``, ``Role:consumer``."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
ALL_USERS: Final = Principal(USER, "*")


class Identity(Struct, frozen=True):
    """What a login established.

    ``groups`` come from the token of an external issuer; ``until_ms`` (wall time) is when a token
    expires; ``by_token`` marks a login with one of our own tokens, by any mechanism: such a login
    may not create or change tokens.
    ``only_roles``: this login has only those rights of the principal that these roles also
    allow.
    """

    principal: Principal
    method: str = ""
    groups: tuple[str, ...] = ()
    until_ms: int | None = None
    by_token: bool = False
    only_roles: tuple[str, ...] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Every name by which rules may apply to this login."""
        return (str(self.principal), str(ALL_USERS), *(f"{GROUP}:{name}" for name in self.groups))


NOBODY: Final = Identity(ANONYMOUS)


def parse_principal(text: str) -> Principal:
    """``Kind:name`` as a principal.

    Raises:
        InvalidRequest: it has no kind or no name, or is too long.
    """
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise InvalidRequest(
            ErrorCode.INVALID_REQUEST,
            f"{text[:NAME_LENGTH_MAX]!r} is not a principal",
            remedy="write a kind and a name, such as User:alice",
        )
    if len(name) > NAME_LENGTH_MAX or len(kind) > NAME_LENGTH_MAX:
        raise InvalidRequest(ErrorCode.INVALID_REQUEST, f"a name of {len(text)} characters")
    return Principal(kind, name)


def check_user_name(name: str) -> None:
    """Refuse a user name that could not log in, or that is ambiguous.

    Raises:
        InvalidRequest: empty, too long, or with unprintable characters.
    """
    if not 0 < len(name) <= NAME_LENGTH_MAX or not name.isprintable() or name == "*":
        raise InvalidRequest(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"{name[:NAME_LENGTH_MAX]!r} cannot be the name of a user",
            remedy=f"use 1 to {NAME_LENGTH_MAX} printable characters, and not *",
        )
