"""The catalogue's decisions on commands about users, rules, roles, quotas and tokens.

Nothing here changes anything. The ``security`` package checks names of users and contents of
rules; this module checks what depends on the current state.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from mainstem.model import scram
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.scram import ScramCredential
from mainstem.placement.changes import security_commands as records
from mainstem.placement.changes.security_commands import SecurityFact
from mainstem.placement.state.security_table import SecurityTable
from mainstem.security.authentication.passwords import Credentials
from mainstem.security.authentication.tokens import NAME_LENGTH_MAX, RENEWERS_MAX, TOKENS_MAX
from mainstem.security.authorisation.acl import AclRule, check_rule
from mainstem.security.authorisation.roles import BUILT_IN, check_role
from mainstem.security.principals import USER, check_user_name, parse_principal
from mainstem.security.quotas import ENTITIES_MAX, check_limits, entity_of

USERS_MAX: Final = 100_000
RULES_MAX: Final = 100_000
ROLES_MAX: Final = 1_000
ROLES_PER_PRINCIPAL_MAX: Final = 100


class SecurityDecision(NamedTuple):
    """Facts to be made durable, and the reply."""

    facts: tuple[SecurityFact, ...]
    reply: Any = None


# Users


def _set_credentials(table: SecurityTable, command: records.SetCredentials) -> SecurityDecision:
    check_user_name(command.user)
    _check_count(len(table.users) + (command.user not in table.users), USERS_MAX, "users")
    return SecurityDecision((records.UserSet(command.user, command.credentials),))


def _alter_scram(table: SecurityTable, command: records.AlterScram) -> SecurityDecision:
    check_user_name(command.user)
    known = table.credentials(command.user) or Credentials()
    kept = {each.mechanism: each for each in known.scram}
    for mechanism in command.deletions:
        if mechanism not in kept:
            raise InvalidRequest(
                ErrorCode.UNKNOWN_RESOURCE,
                f"the user has no {mechanism} credential",
                subject=command.user,
            )
        del kept[mechanism]
    for credential in command.upserts:
        _check_scram(credential)
        kept[credential.mechanism] = credential
    # A user without SCRAM keys who has another kind of password keeps it.
    argon2 = None if command.upserts else known.argon2
    if not kept and argon2 is None:
        return SecurityDecision(_without_user(table, command.user))
    _check_count(len(table.users) + (command.user not in table.users), USERS_MAX, "users")
    ordered = tuple(kept[name] for name in sorted(kept))
    return SecurityDecision((records.UserSet(command.user, Credentials(argon2, ordered)),))


def _check_scram(credential: ScramCredential) -> None:
    if credential.mechanism not in scram.ALGORITHMS:
        raise InvalidRequest(ErrorCode.UNSUPPORTED_MECHANISM, credential.mechanism[:40])
    if not scram.ITERATIONS_MIN <= credential.iterations <= scram.ITERATIONS_MAX:
        raise InvalidRequest(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"{credential.iterations} iterations",
            remedy=f"use {scram.ITERATIONS_MIN} to {scram.ITERATIONS_MAX}",
        )


def _delete_user(table: SecurityTable, command: records.DeleteUser) -> SecurityDecision:
    principal = f"{USER}:{command.user}"
    facts = _without_user(table, command.user)
    owned = [token.id for token in table.api_tokens.values() if token.owner == principal]
    facts += tuple(records.ApiTokenDeleted(token_id) for token_id in owned)
    delegated = [t.id for t in table.delegation_tokens.values() if t.owner == principal]
    if delegated:
        facts += (records.DelegationTokensDeleted(tuple(delegated)),)
    if not facts:
        raise InvalidRequest(
            ErrorCode.UNKNOWN_RESOURCE, "there is no such user", subject=command.user
        )
    return SecurityDecision(facts)


def _without_user(table: SecurityTable, user: str) -> tuple[SecurityFact, ...]:
    facts: tuple[SecurityFact, ...] = ()
    if user in table.users:
        facts += (records.UserDeleted(user),)
    if f"{USER}:{user}" in table.bindings:
        facts += (records.RolesBound(f"{USER}:{user}", ()),)
    return facts


# Rules and roles


def _create_acls(table: SecurityTable, command: records.CreateAcls) -> SecurityDecision:
    for rule in command.rules:
        check_rule(rule)
    fresh = tuple(dict.fromkeys(rule for rule in command.rules if rule not in table.rules))
    if not fresh:
        return SecurityDecision(())
    _check_count(len(table.rules) + len(fresh), RULES_MAX, "rules")
    return SecurityDecision((records.AclsCreated(fresh),))


def _delete_acls(table: SecurityTable, command: records.DeleteAcls) -> SecurityDecision:
    found: list[tuple[AclRule, ...]] = [
        tuple(rule for rule in table.rules if wanted.matches(rule)) for wanted in command.filters
    ]
    gone = tuple(dict.fromkeys(rule for rules in found for rule in rules))
    facts = (records.AclsDeleted(gone),) if gone else ()
    return SecurityDecision(facts, tuple(found))


def _set_role(table: SecurityTable, command: records.SetRole) -> SecurityDecision:
    check_role(command.name, command.rules)
    _check_count(len(table.roles) + (command.name not in table.roles), ROLES_MAX, "roles")
    return SecurityDecision((records.RoleSet(command.name, command.rules),))


def _delete_role(table: SecurityTable, command: records.DeleteRole) -> SecurityDecision:
    if command.name in BUILT_IN:
        raise InvalidRequest(
            ErrorCode.POLICY_VIOLATION, "built-in roles cannot be changed", subject=command.name
        )
    if command.name not in table.roles:
        raise _no_role(command.name)
    return SecurityDecision((records.RoleDeleted(command.name),))


def _bind_role(table: SecurityTable, command: records.BindRole) -> SecurityDecision:
    parse_principal(command.principal)
    if command.role not in table.roles and command.role not in BUILT_IN:
        raise _no_role(command.role)
    held = table.bindings.get(command.principal, ())
    if command.role in held:
        return SecurityDecision(())
    _check_count(len(held) + 1, ROLES_PER_PRINCIPAL_MAX, "roles of one principal")
    _check_count(len(table.bindings) + (not held), USERS_MAX, "principals with roles")
    return SecurityDecision((records.RolesBound(command.principal, (*held, command.role)),))


def _unbind_role(table: SecurityTable, command: records.UnbindRole) -> SecurityDecision:
    held = table.bindings.get(command.principal, ())
    if command.role not in held:
        raise InvalidRequest(
            ErrorCode.UNKNOWN_RESOURCE,
            f"{command.principal} does not have that role",
            subject=command.role,
        )
    left = tuple(role for role in held if role != command.role)
    return SecurityDecision((records.RolesBound(command.principal, left),))


def _no_role(name: str) -> InvalidRequest:
    return InvalidRequest(ErrorCode.UNKNOWN_RESOURCE, "there is no such role", subject=name)


# Quotas


def _alter_quota(table: SecurityTable, command: records.AlterQuota) -> SecurityDecision:
    entity = entity_of(command.entity)
    limits = dict(table.limits(entity))
    check_limits(entity, {name: 1.0 for name, value in command.changes.items() if value is None})
    for name, value in command.changes.items():
        if value is None:
            limits.pop(name, None)
        else:
            limits[name] = value
    check_limits(entity, limits)
    if limits == table.limits(entity):
        return SecurityDecision(())
    known = bool(table.limits(entity))
    _check_count(len(list(table.quotas())) + (not known), ENTITIES_MAX, "entities with limits")
    return SecurityDecision((records.QuotaSet(entity, limits),))


# Tokens


def _create_api_token(table: SecurityTable, command: records.CreateApiToken) -> SecurityDecision:
    token = command.token
    parse_principal(token.owner)
    if not len(token.name) <= NAME_LENGTH_MAX or not token.name.isprintable():
        raise InvalidRequest(ErrorCode.INVALID_REQUEST, "a token needs a printable name")
    for role in token.roles or ():
        if role not in table.roles and role not in BUILT_IN:
            raise _no_role(role)
    assert token.id not in table.api_tokens, "ids of tokens are random"
    _check_count(len(table.api_tokens) + 1, TOKENS_MAX, "API tokens")
    return SecurityDecision((records.ApiTokenSet(token),))


def _delete_api_token(table: SecurityTable, command: records.DeleteApiToken) -> SecurityDecision:
    if command.id not in table.api_tokens:
        raise InvalidRequest(ErrorCode.UNKNOWN_TOKEN, "there is no such token", subject=command.id)
    return SecurityDecision((records.ApiTokenDeleted(command.id),))


def _set_delegation_token(
    table: SecurityTable, command: records.SetDelegationToken
) -> SecurityDecision:
    token = command.token
    for principal in (token.owner, token.requester, *token.renewers):
        parse_principal(principal)
    _check_count(len(token.renewers), RENEWERS_MAX, "renewers of one token")
    if command.is_new:
        _check_count(len(table.delegation_tokens) + 1, TOKENS_MAX, "delegation tokens")
    elif token.id not in table.delegation_tokens:
        raise InvalidRequest(ErrorCode.UNKNOWN_TOKEN, "the token no longer exists")
    return SecurityDecision((records.DelegationTokenSet(token),))


def _delete_delegation_tokens(
    table: SecurityTable, command: records.DeleteDelegationTokens
) -> SecurityDecision:
    known = tuple(token_id for token_id in command.ids if token_id in table.delegation_tokens)
    return SecurityDecision((records.DelegationTokensDeleted(known),) if known else ())


def _set_token_secret(table: SecurityTable, command: records.SetTokenSecret) -> SecurityDecision:
    known = table.token_secret()
    if known is not None:
        return SecurityDecision((), known)
    return SecurityDecision((records.TokenSecretSet(command.secret),), command.secret)


def _check_count(count: int, most: int, what: str) -> None:
    if count > most:
        raise InvalidRequest(ErrorCode.POLICY_VIOLATION, f"more than {most} {what}")


SECURITY_DECIDERS: dict[type, Callable[[SecurityTable, Any], SecurityDecision]] = {
    records.SetCredentials: _set_credentials,
    records.AlterScram: _alter_scram,
    records.DeleteUser: _delete_user,
    records.CreateAcls: _create_acls,
    records.DeleteAcls: _delete_acls,
    records.SetRole: _set_role,
    records.DeleteRole: _delete_role,
    records.BindRole: _bind_role,
    records.UnbindRole: _unbind_role,
    records.AlterQuota: _alter_quota,
    records.CreateApiToken: _create_api_token,
    records.DeleteApiToken: _delete_api_token,
    records.SetDelegationToken: _set_delegation_token,
    records.DeleteDelegationTokens: _delete_delegation_tokens,
    records.SetTokenSecret: _set_token_secret,
}
