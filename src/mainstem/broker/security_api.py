"""The part of the counter that concerns logins, rights, quotas, and those who administer them.

Verbs take a ``Caller``, for the audit: what somebody may do is asked by the protocols, through
``Rights``, before they call. Exceptions are tokens, whose rules depend on whose token it is.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from mainstem.model.scram import ScramCredential
from mainstem.security.acl import AclFilter, AclRule
from mainstem.security.authoriser import Rights
from mainstem.security.logins_service import Logins
from mainstem.security.passwords import Credentials
from mainstem.security.principals import Identity
from mainstem.security.quotas import Entity, QuotaEntry, Quotas
from mainstem.security.roles import RoleRule
from mainstem.security.tokens import ApiToken, DelegationToken

__all__ = [
    "AclFilter",
    "AclRule",
    "ApiToken",
    "Caller",
    "Credentials",
    "DelegationToken",
    "Entity",
    "IssuedToken",
    "QuotaEntry",
    "Rights",
    "RoleRule",
    "ScramCredential",
    "Security",
]


class Caller(Struct, frozen=True):
    """Who asks, from where, with which rights."""

    identity: Identity
    address: str
    rights: Rights


class IssuedToken(Struct, frozen=True):
    """A delegation token with what its user has to show."""

    token: DelegationToken
    hmac: bytes


class Tokens(Protocol):
    """Tokens that stand for somebody. Whose token it is decides who may do what with it."""

    def api_tokens(self, caller: Caller) -> Sequence[ApiToken]:
        """The API tokens that the caller may see."""
        ...

    async def create_api_token(
        self,
        caller: Caller,
        *,
        name: str,
        owner: str | None = None,
        lifetime_ms: int | None = None,
        roles: tuple[str, ...] | None = None,
    ) -> tuple[ApiToken, str]:
        """A new API token and its text, which is told this once."""
        ...

    async def delete_api_token(self, caller: Caller, token_id: str) -> None:
        """Let a token be worth nothing."""
        ...

    async def issue_delegation_token(
        self, caller: Caller, *, owner: str | None, renewers: Sequence[str], lifetime_ms: int
    ) -> IssuedToken:
        """A new delegation token."""
        ...

    async def renew_delegation_token(self, caller: Caller, hmac: bytes, period_ms: int) -> int:
        """Let a delegation token live on; until when."""
        ...

    async def expire_delegation_token(self, caller: Caller, hmac: bytes, period_ms: int) -> int:
        """Let a delegation token end after a while, below 0 at once; when."""
        ...

    def delegation_tokens(
        self, caller: Caller, owners: Sequence[str] | None
    ) -> Sequence[IssuedToken]:
        """The delegation tokens that the caller may see."""
        ...


class Security(Tokens, Protocol):
    """Mutating verbs return once the change is durable and in force."""

    logins: Logins
    quotas: Quotas

    def rights(self, identity: Identity, host: str, *, trusted: bool = False) -> Rights:
        """What a login may do; ``trusted``: it came by a listener that belongs to the operator."""
        ...

    # Users

    def users(self) -> Mapping[str, Credentials]:
        """Every user with a password."""
        ...

    async def set_password(self, caller: Caller, user: str, password: str) -> None:
        """Give a user a password for every mechanism."""
        ...

    async def alter_scram(
        self,
        caller: Caller,
        user: str,
        upserts: Sequence[ScramCredential],
        deletions: Sequence[str],
    ) -> None:
        """Replace and remove SCRAM keys of a user."""
        ...

    async def delete_user(self, caller: Caller, user: str) -> None:
        """Forget a user's password, roles and tokens."""
        ...

    # Rules and roles

    def rules(self, wanted: AclFilter) -> Sequence[AclRule]:
        """The rules that a filter finds."""
        ...

    async def create_acls(self, caller: Caller, rules: Sequence[AclRule]) -> None:
        """Add rules."""
        ...

    async def delete_acls(
        self, caller: Caller, filters: Sequence[AclFilter]
    ) -> Sequence[Sequence[AclRule]]:
        """Remove rules; what each filter found."""
        ...

    def roles(self) -> Mapping[str, tuple[RoleRule, ...]]:
        """Every role, built in or made."""
        ...

    def bindings(self) -> Mapping[str, tuple[str, ...]]:
        """Which roles each principal has."""
        ...

    async def set_role(self, caller: Caller, name: str, rules: Sequence[RoleRule]) -> None:
        """Make a role, or replace its rules."""
        ...

    async def delete_role(self, caller: Caller, name: str) -> None:
        """Forget a role."""
        ...

    async def bind_role(self, caller: Caller, principal: str, role: str, *, bound: bool) -> None:
        """Give a role to a principal, or take it."""
        ...

    # Quotas

    def limits(self) -> Iterable[QuotaEntry]:
        """Every entity with limits."""
        ...

    async def alter_quota(
        self,
        caller: Caller,
        entity: Entity,
        changes: Mapping[str, float | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change limits of an entity; None removes one."""
        ...
