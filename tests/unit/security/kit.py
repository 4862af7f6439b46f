"""A clock that stands still, and short ways to write rules."""

from mainstem.security.acl import AclRule, Operation, PatternType, Permission, ResourceType
from mainstem.security.principals import USER, Identity, Principal


class StillClock:
    """Time that moves when a test says so."""

    def __init__(self, now_s: float = 1_000_000.0) -> None:
        self.now_s = now_s

    def wall_ms(self) -> int:
        return round(self.now_s * 1000)

    def monotonic(self) -> float:
        return self.now_s


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
