"""Access rules in Kafka's terms: which principal may, or may not, do what to which resources.

Numbers are those of Kafka's protocol. ``GLOB`` is an extension: Kafka's own clients show it as
unknown.
"""

from enum import IntEnum
from typing import Final

from msgspec import Struct

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.security.authorisation.name_pattern import NamePattern
from mainstem.security.principals import parse_principal

EVERYTHING: Final = "*"
CLUSTER_NAME: Final = "kafka-cluster"
ANY_HOST: Final = "*"
NAME_LENGTH_MAX: Final = 4_096
HOST_LENGTH_MAX: Final = 255


class ResourceType(IntEnum):
    """The type of resource of a rule."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How a rule names its resources; ANY and MATCH occur in filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4
    GLOB = 5


class Operation(IntEnum):
    """What may be done."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Whether a rule allows or denies."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


_O = Operation

OPERATIONS_OF: Final[dict[ResourceType, frozenset[Operation]]] = {
    ResourceType.TOPIC: frozenset({
        _O.READ, _O.WRITE, _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE, _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
    }),
    ResourceType.GROUP: frozenset({
        _O.READ, _O.DELETE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS,
    }),
    ResourceType.CLUSTER: frozenset({
        _O.CREATE, _O.ALTER, _O.DESCRIBE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS, _O.IDEMPOTENT_WRITE,
    }),
    ResourceType.TRANSACTIONAL_ID: frozenset({_O.WRITE, _O.DESCRIBE, _O.TWO_PHASE_COMMIT}),
    ResourceType.DELEGATION_TOKEN: frozenset({_O.DESCRIBE}),
    ResourceType.USER: frozenset({_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS}),
}  # fmt: skip
"""The operations of each type of resource."""


class AclRule(Struct, frozen=True, forbid_unknown_fields=True):
    """One rule. ``principal`` is ``Kind:name``; ``User:*`` is every user."""

    resource_type: ResourceType
    pattern_type: PatternType
    name: str
    principal: str
    host: str
    operation: Operation
    permission: Permission


class AclFilter(Struct, frozen=True):
    """Selects rules. None and ANY match any value; MATCH finds all that would apply."""

    resource_type: ResourceType = ResourceType.ANY
    pattern_type: PatternType = PatternType.ANY
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, rule: AclRule) -> bool:
        """Whether a rule matches."""
        return (
            self.resource_type in (ResourceType.ANY, rule.resource_type)
            and self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self.operation in (Operation.ANY, rule.operation)
            and self.permission in (Permission.ANY, rule.permission)
            and self._names(rule)
        )

    def _names(self, rule: AclRule) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, rule.pattern_type):
            return False
        if self.name is None or self.name == rule.name:
            return True
        return self.pattern_type == PatternType.MATCH and covers(rule, self.name)


def covers(rule: AclRule, name: str, user: str = "") -> bool:
    """Whether a rule applies to the resource of that name."""
    if rule.pattern_type == PatternType.LITERAL:
        return rule.name in (name, EVERYTHING)
    if rule.pattern_type == PatternType.PREFIXED:
        return name.startswith(rule.name)
    return NamePattern(rule.name).matches(name, user)


def check_rule(rule: AclRule) -> None:
    """Refuse a rule that could never apply, or that covers less than it seems to.

    Raises:
        InvalidRequest: an unknown part, a filter value, an operation that the resource lacks.
    """
    if rule.resource_type not in OPERATIONS_OF:
        raise _invalid(f"no rule can be about {rule.resource_type.name}")
    if rule.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED, PatternType.GLOB):
        raise _invalid(f"no rule can name resources by {rule.pattern_type.name}")
    if rule.permission not in (Permission.ALLOW, Permission.DENY):
        raise _invalid(f"{rule.permission.name} is not a permission")
    if rule.operation not in {*OPERATIONS_OF[rule.resource_type], Operation.ALL}:
        raise _invalid(f"{rule.operation.name} is not an operation of {rule.resource_type.name}")
    if not 0 < len(rule.name) <= NAME_LENGTH_MAX:
        raise _invalid(f"a resource name of {len(rule.name)} characters")
    if not 0 < len(rule.host) <= HOST_LENGTH_MAX:
        raise _invalid("a rule names a host, or * for any")
    if rule.resource_type == ResourceType.CLUSTER and rule.name not in (CLUSTER_NAME, EVERYTHING):
        raise _invalid(f"the cluster is called {CLUSTER_NAME}")
    if rule.pattern_type == PatternType.GLOB:
        NamePattern(rule.name)
    parse_principal(rule.principal)


def _invalid(cause: str) -> InvalidRequest:
    return InvalidRequest(ErrorCode.INVALID_REQUEST, cause, subject="access rule")
