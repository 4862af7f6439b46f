"""Short ways to write rules."""

from mainstem.security.authorisation.acl import (
    AclRule,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from mainstem.security.principals import USER, Identity, Principal


def user(name: str, **rest: object) -> Identity:
    return Identity(Principal(USER, name), **rest)  # type: ignore[arg-type]


def rule(
    who: str,
    operation: Operation,
    name: str,
    *,
    kind: ResourceType = ResourceType.TOPIC,
    pattern: PatternType = PatternType.LITERAL,
    deny: bool = False,
    host: str = "*",
) -> AclRule:
    permission = Permission.DENY if deny else Permission.ALLOW
    return AclRule(kind, pattern, name, who, host, operation, permission)
