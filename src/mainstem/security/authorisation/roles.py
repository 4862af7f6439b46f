"""Roles: named sets of rules that users are given instead of single rules.

Four are built in and cannot be changed; others consist of rules like those of ``acl``. A role
applies to every principal it is bound to, in addition to rules that name the principal directly; a
deny from either wins.
"""

from typing import Final

from msgspec import Struct

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.security.authorisation.acl import (
    ANY_HOST,
    CLUSTER_NAME,
    EVERYTHING,
    AclRule,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    check_rule,
)
from mainstem.security.principals import ROLE

RULES_PER_ROLE_MAX: Final = 1_000
NAME_LENGTH_MAX: Final = 100


class RoleRule(Struct, frozen=True, forbid_unknown_fields=True):
    """A rule without a principal: it applies to every principal that has the role."""

    resource_type: ResourceType
    operation: Operation
    name: str = EVERYTHING
    pattern_type: PatternType = PatternType.LITERAL
    permission: Permission = Permission.ALLOW


def _all(kind: ResourceType, *operations: Operation) -> tuple[RoleRule, ...]:
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else EVERYTHING
    return tuple(RoleRule(kind, operation, name) for operation in operations)


_R, _O = ResourceType, Operation

BUILT_IN: Final[dict[str, tuple[RoleRule, ...]]] = {
    "admin": tuple(
        rule
        for kind in (_R.TOPIC, _R.GROUP, _R.CLUSTER, _R.TRANSACTIONAL_ID, _R.DELEGATION_TOKEN,
                     _R.USER)
        for rule in _all(kind, _O.ALL)
    ),
    "producer": (
        *_all(_R.TOPIC, _O.WRITE, _O.CREATE),
        *_all(_R.TRANSACTIONAL_ID, _O.WRITE),
        *_all(_R.CLUSTER, _O.IDEMPOTENT_WRITE),
    ),
    "consumer": (
        *_all(_R.TOPIC, _O.READ),
        *_all(_R.GROUP, _O.READ),
    ),
    "read-only": (
        *_all(_R.TOPIC, _O.READ, _O.DESCRIBE_CONFIGS),
        *_all(_R.GROUP, _O.DESCRIBE),
        *_all(_R.TRANSACTIONAL_ID, _O.DESCRIBE),
        *_all(_R.CLUSTER, _O.DESCRIBE, _O.DESCRIBE_CONFIGS),
    ),
}  # fmt: skip
"""The built-in roles. ``read-only`` reads records and all descriptions, and changes nothing, not
even the committed offsets of a group."""


def rules_of(role: str, rules: tuple[RoleRule, ...]) -> list[AclRule]:
    """A role's rules as access rules whose principal is the role."""
    return [
        AclRule(
            rule.resource_type,
            rule.pattern_type,
            rule.name,
            f"{ROLE}:{role}",
            ANY_HOST,
            rule.operation,
            rule.permission,
        )
        for rule in rules
    ]


def check_role(name: str, rules: tuple[RoleRule, ...]) -> None:
    """Refuse an invalid role, or one that would change a built-in one.

    Raises:
        InvalidRequest: its name or one of its rules is invalid.
    """
    if name in BUILT_IN:
        raise InvalidRequest(
            ErrorCode.POLICY_VIOLATION, "built-in roles cannot be changed", subject=name
        )
    if not 0 < len(name) <= NAME_LENGTH_MAX or not name.isprintable() or ":" in name:
        raise InvalidRequest(
            ErrorCode.INVALID_REQUEST, f"{name[:NAME_LENGTH_MAX]!r} cannot be the name of a role"
        )
    if len(rules) > RULES_PER_ROLE_MAX:
        raise InvalidRequest(ErrorCode.INVALID_REQUEST, f"{len(rules)} rules in one role")
    for rule in rules_of(name, rules):
        check_rule(rule)
