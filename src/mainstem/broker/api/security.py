"""The broker API for logins, rights, quotas and their administration.

Operations take a ``Caller``, for the audit; protocols check permissions through ``Rights`` before
they call. Tokens are the exception: their rules depend on the token's owner.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from mainstem.model.scram import ScramCredential
from mainstem.security.authentication.login_service import LoginService
from mainstem.security.authentication.passwords import Credentials
from mainstem.security.authentication.tokens import ApiToken, DelegationToken
from mainstem.security.authorisation.acl import AclFilter, AclRule
from mainstem.security.authorisation.authoriser import Rights
from mainstem.security.authorisation.roles import RoleRule
from mainstem.security.principals import Identity
from mainstem.security.quotas import Entity, QuotaEntry, Quotas

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
    """The identity, address and rights of a caller."""

    identity: Identity
    address: str
    rights: Rights


class IssuedToken(Struct, frozen=True):
    """A delegation token with its HMAC, which authenticates its user."""

    token: DelegationToken
    hmac: bytes


class Users(Protocol):
    """Users with a password."""

    def all(self) -> Mapping[str, Credentials]:
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

    async def delete(self, caller: Caller, user: str) -> None:
        """Delete a user's password, roles and tokens."""
        ...


class AccessRules(Protocol):
    """Kafka's ACLs."""

    def matching(self, wanted: AclFilter) -> Sequence[AclRule]:
        """The rules that a filter finds."""
        ...

    async def create(self, caller: Caller, rules: Sequence[AclRule]) -> None:
        """Add rules."""
        ...

    async def delete(
        self, caller: Caller, filters: Sequence[AclFilter]
    ) -> Sequence[Sequence[AclRule]]:
        """Remove rules; what each filter found."""
        ...


class Roles(Protocol):
    """Named sets of rules, and who has them."""

    def all(self) -> Mapping[str, tuple[RoleRule, ...]]:
        """Every role, built in or created."""
        ...

    def bindings(self) -> Mapping[str, tuple[str, ...]]:
        """Which roles each principal has."""
        ...

    async def set(self, caller: Caller, name: str, rules: Sequence[RoleRule]) -> None:
        """Create a role, or replace its rules."""
        ...

    async def delete(self, caller: Caller, name: str) -> None:
        """Delete a role."""
        ...

    async def bind(self, caller: Caller, principal: str, role: str, *, bound: bool) -> None:
        """Grant a role to a principal, or revoke it."""
        ...


class ApiTokens(Protocol):
    """API tokens. Permissions depend on the token's owner."""

    def visible_to(self, caller: Caller) -> Sequence[ApiToken]:
        """The API tokens that the caller may see."""
        ...

    async def create(
        self,
        caller: Caller,
        *,
        name: str,
        owner: str | None = None,
        lifetime_ms: int | None = None,
        roles: tuple[str, ...] | None = None,
    ) -> tuple[ApiToken, str]:
        """A new API token and its text, which is shown only once."""
        ...

    async def delete(self, caller: Caller, token_id: str) -> None:
        """Revoke a token."""
        ...


class DelegationTokens(Protocol):
    """Delegation tokens. Permissions depend on the token's owner."""

    async def issue(
        self, caller: Caller, *, owner: str | None, renewers: Sequence[str], lifetime_ms: int
    ) -> IssuedToken:
        """A new delegation token."""
        ...

    async def renew(self, caller: Caller, hmac: bytes, period_ms: int) -> int:
        """Renew a delegation token; returns its new expiry time."""
        ...

    async def expire(self, caller: Caller, hmac: bytes, period_ms: int) -> int:
        """Expire a delegation token after a time, below 0 at once; returns its expiry time."""
        ...

    def visible_to(self, caller: Caller, owners: Sequence[str] | None) -> Sequence[IssuedToken]:
        """The delegation tokens that the caller may see."""
        ...


class QuotaLimits(Protocol):
    """Quotas of users, clients and addresses."""

    def all(self) -> Iterable[QuotaEntry]:
        """Every entity with limits."""
        ...

    async def alter(
        self,
        caller: Caller,
        entity: Entity,
        changes: Mapping[str, float | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change limits of an entity; None removes one."""
        ...


class Security(Protocol):
    """Mutating operations of its parts return once the change is durable and in force."""

    logins: LoginService
    quotas: Quotas

    def rights(self, identity: Identity, host: str, *, trusted: bool = False) -> Rights:
        """The rights of a login; ``trusted``: it came through a trusted loopback listener."""
        ...

    @property
    def users(self) -> Users:
        """Users and their passwords."""
        ...

    @property
    def rules(self) -> AccessRules:
        """Access rules."""
        ...

    @property
    def roles(self) -> Roles:
        """Roles and who has them."""
        ...

    @property
    def api_tokens(self) -> ApiTokens:
        """Tokens of the HTTP API."""
        ...

    @property
    def delegation_tokens(self) -> DelegationTokens:
        """Kafka's delegation tokens."""
        ...

    @property
    def limits(self) -> QuotaLimits:
        """Limits of users and clients."""
        ...
