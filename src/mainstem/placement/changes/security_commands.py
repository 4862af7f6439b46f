"""Commands and facts about users, rules, roles, quotas and tokens, in the manner of ``records``.

A fact carries the whole new value of its subject, so that replaying needs no arithmetic.
"""

from msgspec import Struct

from mainstem.model.scram import ScramCredential
from mainstem.placement.changes.command_and_fact import Command, Fact
from mainstem.security.authentication.passwords import Credentials
from mainstem.security.authentication.tokens import ApiToken, DelegationToken
from mainstem.security.authorisation.acl import AclFilter, AclRule
from mainstem.security.authorisation.roles import RoleRule
from mainstem.security.quotas import Entity, QuotaEntry


class SetCredentials(Command[None], frozen=True):
    """Give a user a new password."""

    user: str
    credentials: Credentials


class AlterScram(Command[None], frozen=True):
    """Replace and remove SCRAM keys of a user. New ones replace a password stored otherwise."""

    user: str
    upserts: tuple[ScramCredential, ...] = ()
    deletions: tuple[str, ...] = ()


class DeleteUser(Command[None], frozen=True):
    """Remove a user's password, roles and tokens. Rules that name the user stay."""

    user: str


class CreateAcls(Command[None], frozen=True):
    """Add rules; existing ones stay as they are."""

    rules: tuple[AclRule, ...]


class DeleteAcls(Command[tuple[tuple[AclRule, ...], ...]], frozen=True):
    """Remove the rules that filters match; the matches of each."""

    filters: tuple[AclFilter, ...]


class SetRole(Command[None], frozen=True):
    """Make a role, or replace its rules."""

    name: str
    rules: tuple[RoleRule, ...]


class DeleteRole(Command[None], frozen=True):
    """Remove a role from all principals and delete it."""

    name: str


class BindRole(Command[None], frozen=True):
    """Give a role to a principal."""

    principal: str
    role: str


class UnbindRole(Command[None], frozen=True):
    """Revoke a role from a principal."""

    principal: str
    role: str


class AlterQuota(Command[None], frozen=True):
    """Change limits of an entity; None removes one."""

    entity: Entity
    changes: dict[str, float | None]


class CreateApiToken(Command[None], frozen=True):
    """Store a new API token."""

    token: ApiToken


class DeleteApiToken(Command[None], frozen=True):
    """Delete an API token: it is no longer valid."""

    id: str


class SetDelegationToken(Command[None], frozen=True):
    """Store a new delegation token, or new times of one (``is_new`` false)."""

    token: DelegationToken
    is_new: bool


class DeleteDelegationTokens(Command[None], frozen=True):
    """Delete delegation tokens."""

    ids: tuple[str, ...]


class SetTokenSecret(Command[bytes], frozen=True):
    """Give the cluster the secret of its delegation tokens, unless it has one; the secret."""

    secret: bytes


class UserSet(Fact, frozen=True):
    """A user has these credentials."""

    user: str
    credentials: Credentials


class UserDeleted(Fact, frozen=True):
    """A user was removed."""

    user: str


class AclsCreated(Fact, frozen=True):
    """Rules were added."""

    rules: tuple[AclRule, ...]


class AclsDeleted(Fact, frozen=True):
    """Rules were removed."""

    rules: tuple[AclRule, ...]


class RoleSet(Fact, frozen=True):
    """A role consists of these rules."""

    name: str
    rules: tuple[RoleRule, ...]


class RoleDeleted(Fact, frozen=True):
    """A role was deleted."""

    name: str


class RolesBound(Fact, frozen=True):
    """A principal has these roles and no others."""

    principal: str
    roles: tuple[str, ...]


class QuotaSet(Fact, frozen=True):
    """An entity has these limits and no others."""

    entity: Entity
    limits: dict[str, float]


class ApiTokenSet(Fact, frozen=True):
    """An API token exists."""

    token: ApiToken


class ApiTokenDeleted(Fact, frozen=True):
    """An API token was deleted."""

    id: str


class DelegationTokenSet(Fact, frozen=True):
    """A delegation token exists with these times."""

    token: DelegationToken


class DelegationTokensDeleted(Fact, frozen=True):
    """Delegation tokens were deleted."""

    ids: tuple[str, ...]


class TokenSecretSet(Fact, frozen=True):
    """Delegation tokens are made with this secret."""

    secret: bytes


SecurityFact = (
    UserSet
    | UserDeleted
    | AclsCreated
    | AclsDeleted
    | RoleSet
    | RoleDeleted
    | RolesBound
    | QuotaSet
    | ApiTokenSet
    | ApiTokenDeleted
    | DelegationTokenSet
    | DelegationTokensDeleted
    | TokenSecretSet
)


class SecurityState(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The whole security state as one value, part of the catalogue's snapshot."""

    users: dict[str, Credentials] = {}
    rules: tuple[AclRule, ...] = ()
    roles: dict[str, tuple[RoleRule, ...]] = {}
    bindings: dict[str, tuple[str, ...]] = {}
    quotas: tuple[QuotaEntry, ...] = ()
    api_tokens: tuple[ApiToken, ...] = ()
    delegation_tokens: tuple[DelegationToken, ...] = ()
    token_secret: bytes | None = None
