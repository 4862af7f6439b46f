"""Roles: named sets of rules that users are given instead of single rules.

Four are built in and cannot be changed; others are made of rules like those of ``acl``. A role is
in force for everyone it is bound to, beside whatever rules name them directly; a deny wins wherever
it comes from.
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
    """A rule without a principal: it concerns whoever has the role."""

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
"""What everyone expects to find. ``read-only`` sees records and everything about them, and changes
nothing: not even the position of a group."""


def rules_of(role: str, rules: tuple[RoleRule, ...]) -> list[AclRule]:
    """A role's rules as rules of access whose principal is the role."""
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
    """Refuse a role that cannot be, or that would change a built-in one.

    Raises:
        InvalidRequest: its name or one of its rules is not possible.
    """
    if name in BUILT_IN:
        raise InvalidRequest(
            ErrorCode.POLICY_VIOLATION, "built-in roles stay as they are", subject=name
        )
    if not 0 < len(name) <= NAME_LENGTH_MAX or not name.isprintable() or ":" in name:
        raise InvalidRequest(
            ErrorCode.INVALID_REQUEST, f"{name[:NAME_LENGTH_MAX]!r} cannot be the name of a role"
        )
    if len(rules) > RULES_PER_ROLE_MAX:
        raise InvalidRequest(ErrorCode.INVALID_REQUEST, f"{len(rules)} rules in one role")
    for rule in rules_of(name, rules):
        check_rule(rule)
