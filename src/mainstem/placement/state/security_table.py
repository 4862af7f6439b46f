"""The catalogue's users, rules, roles, quotas and tokens; changed by replay only."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mainstem.placement.changes import security_commands as records
from mainstem.placement.changes.security_commands import SecurityFact, SecurityState
from mainstem.security.authentication.passwords import Credentials
from mainstem.security.authentication.tokens import ApiToken, DelegationToken
from mainstem.security.authorisation.acl import AclRule
from mainstem.security.authorisation.roles import RoleRule
from mainstem.security.quotas import Entity, QuotaEntry


class SecurityTable:
    """Look-ups, and ``replay``. The mappings are to be read, never written."""

    def __init__(self, state: SecurityState) -> None:
        self._users = dict(state.users)
        self._rules = dict.fromkeys(state.rules)
        self._roles = dict(state.roles)
        self._bindings = dict(state.bindings)
        self._quotas = {entry.entity: entry.limits for entry in state.quotas}
        self._api_tokens = {token.id: token for token in state.api_tokens}
        self._delegation_tokens = {token.id: token for token in state.delegation_tokens}
        self._token_secret = state.token_secret

    def become(self, state: SecurityState) -> None:
        """Replace the content by ``state``, in place: references to the mappings stay valid."""
        other = SecurityTable(state)
        for name, value in vars(other).items():
            mine = getattr(self, name)
            if isinstance(mine, dict):
                mine.clear()
                mine.update(value)
            else:
                setattr(self, name, value)

    def state(self) -> SecurityState:
        """Everything as one value."""
        return SecurityState(
            users=dict(self._users),
            rules=tuple(self._rules),
            roles=dict(self._roles),
            bindings=dict(self._bindings),
            quotas=tuple(self.quotas()),
            api_tokens=tuple(self._api_tokens.values()),
            delegation_tokens=tuple(self._delegation_tokens.values()),
            token_secret=self._token_secret,
        )

    @property
    def users(self) -> Mapping[str, Credentials]:
        """Every user with a password."""
        return self._users

    @property
    def rules(self) -> Mapping[AclRule, None]:
        """Every rule, in the order of creation."""
        return self._rules

    @property
    def roles(self) -> Mapping[str, tuple[RoleRule, ...]]:
        """Every custom role."""
        return self._roles

    @property
    def bindings(self) -> Mapping[str, tuple[str, ...]]:
        """Which roles a principal has."""
        return self._bindings

    @property
    def api_tokens(self) -> Mapping[str, ApiToken]:
        """Every API token."""
        return self._api_tokens

    @property
    def delegation_tokens(self) -> Mapping[str, DelegationToken]:
        """Every delegation token."""
        return self._delegation_tokens

    def limits(self, entity: Entity) -> Mapping[str, float]:
        """The limits of an entity."""
        return self._quotas.get(entity, {})

    def quotas(self) -> Iterable[QuotaEntry]:
        """Every entity with limits."""
        return [QuotaEntry(entity, dict(limits)) for entity, limits in self._quotas.items()]

    # As a source of credentials

    def credentials(self, user: str) -> Credentials | None:
        """The stored credentials of a user."""
        return self._users.get(user)

    def api_token(self, token_id: str) -> ApiToken | None:
        """An API token."""
        return self._api_tokens.get(token_id)

    def delegation_token(self, token_id: str) -> DelegationToken | None:
        """A delegation token."""
        return self._delegation_tokens.get(token_id)

    def token_secret(self) -> bytes | None:
        """The secret that delegation tokens are made with."""
        return self._token_secret

    def replay(self, fact: SecurityFact) -> bool:
        """Apply a fact; False: what it removes does not exist."""
        return _REPLAYS[type(fact)](self, fact)


def _user_set(table: SecurityTable, fact: records.UserSet) -> bool:
    table._users[fact.user] = fact.credentials
    return True


def _user_deleted(table: SecurityTable, fact: records.UserDeleted) -> bool:
    return table._users.pop(fact.user, None) is not None


def _acls_created(table: SecurityTable, fact: records.AclsCreated) -> bool:
    table._rules.update(dict.fromkeys(fact.rules))
    return True


def _acls_deleted(table: SecurityTable, fact: records.AclsDeleted) -> bool:
    before = len(table._rules)
    for rule in fact.rules:
        table._rules.pop(rule, None)
    return len(table._rules) < before


def _role_set(table: SecurityTable, fact: records.RoleSet) -> bool:
    table._roles[fact.name] = fact.rules
    return True


def _role_deleted(table: SecurityTable, fact: records.RoleDeleted) -> bool:
    if table._roles.pop(fact.name, None) is None:
        return False
    for principal, roles in list(table._bindings.items()):
        if fact.name in roles:
            left = tuple(role for role in roles if role != fact.name)
            _roles_bound(table, records.RolesBound(principal, left))
    return True


def _roles_bound(table: SecurityTable, fact: records.RolesBound) -> bool:
    if fact.roles:
        table._bindings[fact.principal] = fact.roles
    else:
        table._bindings.pop(fact.principal, None)
    return True


def _quota_set(table: SecurityTable, fact: records.QuotaSet) -> bool:
    if fact.limits:
        table._quotas[fact.entity] = dict(fact.limits)
    else:
        table._quotas.pop(fact.entity, None)
    return True


def _api_token_set(table: SecurityTable, fact: records.ApiTokenSet) -> bool:
    table._api_tokens[fact.token.id] = fact.token
    return True


def _api_token_deleted(table: SecurityTable, fact: records.ApiTokenDeleted) -> bool:
    return table._api_tokens.pop(fact.id, None) is not None


def _delegation_token_set(table: SecurityTable, fact: records.DelegationTokenSet) -> bool:
    table._delegation_tokens[fact.token.id] = fact.token
    return True


def _delegation_tokens_deleted(table: SecurityTable, fact: records.DelegationTokensDeleted) -> bool:
    before = len(table._delegation_tokens)
    for token_id in fact.ids:
        table._delegation_tokens.pop(token_id, None)
    return len(table._delegation_tokens) < before


def _token_secret_set(table: SecurityTable, fact: records.TokenSecretSet) -> bool:
    table._token_secret = fact.secret
    return True


_REPLAYS: dict[type, Callable[[SecurityTable, Any], bool]] = {
    records.UserSet: _user_set,
    records.UserDeleted: _user_deleted,
    records.AclsCreated: _acls_created,
    records.AclsDeleted: _acls_deleted,
    records.RoleSet: _role_set,
    records.RoleDeleted: _role_deleted,
    records.RolesBound: _roles_bound,
    records.QuotaSet: _quota_set,
    records.ApiTokenSet: _api_token_set,
    records.ApiTokenDeleted: _api_token_deleted,
    records.DelegationTokenSet: _delegation_token_set,
    records.DelegationTokensDeleted: _delegation_tokens_deleted,
    records.TokenSecretSet: _token_secret_set,
}
SECURITY_FACTS = frozenset(_REPLAYS)
