"""Decides about access. Deny wins; without a rule that allows, access is denied.

Rules are indexed by principal, resource type and name, so that a decision reads only the few that
can apply, however many there are. One look-up returns all operations at once, as a set of bits; it
is cached until any rule changes, which changes ``version``.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from msgspec.structs import replace

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.security.authorisation.acl import (
    ANY_HOST,
    EVERYTHING,
    AclRule,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    covers,
)
from mainstem.security.authorisation.name_pattern import NamePattern
from mainstem.security.authorisation.roles import BUILT_IN, RoleRule, rules_of
from mainstem.security.principals import ROLE, Identity

DECISIONS_REMEMBERED_MAX: Final = 65_536
ALL_BITS: Final = sum(1 << op for op in Operation if op > Operation.ALL)

_DESCRIBE: Final = 1 << Operation.DESCRIBE
_IMPLIED: Final = {
    Operation.READ: _DESCRIBE,
    Operation.WRITE: _DESCRIBE,
    Operation.DELETE: _DESCRIBE,
    Operation.ALTER: _DESCRIBE,
    Operation.ALTER_CONFIGS: 1 << Operation.DESCRIBE_CONFIGS,
}

_REFUSALS: Final = {
    ResourceType.TOPIC: ErrorCode.NOT_AUTHORIZED,
    ResourceType.GROUP: ErrorCode.GROUP_NOT_AUTHORIZED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_NOT_AUTHORIZED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_NOT_AUTHORIZED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.TOKEN_NOT_AUTHORIZED,
    ResourceType.USER: ErrorCode.TOKEN_NOT_AUTHORIZED,
}

RefusalListener = Callable[[Identity, str, Operation, ResourceType, str], None]
Roles = Mapping[str, tuple[RoleRule, ...]]
Bindings = Mapping[str, tuple[str, ...]]  # principal to the roles it has


class Rights(Protocol):
    """What one connection may do. ``version`` changes whenever an answer may have."""

    @property
    def version(self) -> int:
        """Answers of the same version are still valid."""
        ...

    def may(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether the operation is allowed on that resource."""
        ...

    def need(self, operation: Operation, kind: ResourceType, name: str) -> None:
        """Refuse, and audit, unless the operation is allowed on that resource."""
        ...

    def may_somewhere(self, operation: Operation, kind: ResourceType) -> bool:
        """Whether the operation is allowed on any resource of that kind."""
        ...

    def operations(self, kind: ResourceType, name: str) -> int:
        """Every allowed operation, as bits by number."""
        ...


class AllRights:
    """The rights of every client where authorisation is off."""

    version = 0

    def may(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Allow everything."""
        return True

    def need(self, operation: Operation, kind: ResourceType, name: str) -> None:
        """Refuse nothing."""

    def may_somewhere(self, operation: Operation, kind: ResourceType) -> bool:
        """Allow everything."""
        return True

    def operations(self, kind: ResourceType, name: str) -> int:
        """All operations."""
        return ALL_BITS


class _Rules:
    """The rules of one principal about one type of resource."""

    __slots__ = ("globs", "literal", "prefix_lengths", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, list[AclRule]] = {}
        self.prefixed: dict[str, list[AclRule]] = {}
        self.prefix_lengths: list[int] = []
        self.globs: list[tuple[NamePattern, AclRule]] = []

    def add(self, rule: AclRule) -> None:
        if rule.pattern_type == PatternType.LITERAL:
            self.literal.setdefault(rule.name, []).append(rule)
        elif rule.pattern_type == PatternType.PREFIXED:
            self.prefixed.setdefault(rule.name, []).append(rule)
            self.prefix_lengths = sorted({len(prefix) for prefix in self.prefixed})
        else:
            self.globs.append((NamePattern(rule.name), rule))

    def about(self, name: str, user: str) -> Iterable[AclRule]:
        yield from self.literal.get(name, ())
        if name != EVERYTHING:
            yield from self.literal.get(EVERYTHING, ())
        for length in self.prefix_lengths:
            if length > len(name):
                break
            yield from self.prefixed.get(name[:length], ())
        for glob, rule in self.globs:
            if glob.matches(name, user):
                yield rule

    def all(self) -> Iterable[AclRule]:
        for rules in (*self.literal.values(), *self.prefixed.values()):
            yield from rules
        yield from (rule for _, rule in self.globs)


class Authoriser:
    """Decides whether a principal may perform an operation.

    Args:
        super_users: may do everything, regardless of rules.
        open_without_rules: whether every user may do everything with a resource that no access rule
            names (Kafka's ``allow.everyone.if.no.acl.found``); rules of roles do not count.
    """

    def __init__(
        self, super_users: Iterable[str] = (), *, open_without_rules: bool = False
    ) -> None:
        self._super_users = frozenset(super_users)
        self._open_without_rules = open_without_rules
        self._named: dict[ResourceType, _Rules] = {}
        self._index: dict[tuple[str, ResourceType], _Rules] = {}
        self._bindings: Bindings = {}
        self._hosts: frozenset[str] = frozenset()
        self._remembered: dict[tuple[object, ...], int] = {}
        self.version = 0

    def load(self, rules: Iterable[AclRule], roles: Roles, bindings: Bindings) -> None:
        """Replace all rules."""
        index: dict[tuple[str, ResourceType], _Rules] = {}
        hosts = set()
        everything = list(rules)
        named: dict[ResourceType, _Rules] = {}
        for rule in everything:
            named.setdefault(rule.resource_type, _Rules()).add(rule)
        for role, its_rules in {**roles, **BUILT_IN}.items():
            everything += rules_of(role, its_rules)
        for rule in everything:
            index.setdefault((rule.principal, rule.resource_type), _Rules()).add(rule)
            hosts.add(rule.host)
        self._index = index
        self._named = named
        self._hosts = frozenset(hosts - {ANY_HOST})
        self._bindings = dict(bindings)
        self._remembered.clear()
        self.version += 1

    def is_super(self, identity: Identity) -> bool:
        """Whether no rule applies to this login."""
        return identity.only_roles is None and str(identity.principal) in self._super_users

    def allows(
        self,
        identity: Identity,
        host: str,
        operation: Operation,
        kind: ResourceType,
        name: str,
    ) -> bool:
        """Whether the operation is allowed."""
        return bool(self.operations(identity, host, kind, name) >> operation & 1)

    def operations(self, identity: Identity, host: str, kind: ResourceType, name: str) -> int:
        """Every allowed operation on one resource, as bits by number."""
        if self.is_super(identity):
            return ALL_BITS
        if identity.only_roles is not None:
            owner = replace(identity, only_roles=None)
            limit = self._bits(_subjects_of_roles(identity.only_roles), identity, host, kind, name)
            return limit & self.operations(owner, host, kind, name)
        key = (identity.names, host if host in self._hosts else "", kind, name)
        found = self._remembered.get(key)
        if found is None:
            granted = ALL_BITS if self._is_open(identity, kind, name) else 0
            found = self._bits(
                self._subjects(identity), identity, host, kind, name, granted=granted
            )
            if len(self._remembered) >= DECISIONS_REMEMBERED_MAX:
                self._remembered.clear()
            self._remembered[key] = found
        return found

    def allows_somewhere(
        self, identity: Identity, host: str, operation: Operation, kind: ResourceType
    ) -> bool:
        """Whether some resource of that kind could be allowed (KIP-679).

        An allow counts unless one deny covers everything that it covers.
        """
        if identity.only_roles is not None:
            owner = replace(identity, only_roles=None)
            subjects = _subjects_of_roles(identity.only_roles)
            if not self.allows_somewhere(owner, host, operation, kind):
                return False
        elif self.is_super(identity):
            return True
        else:
            subjects = self._subjects(identity)
        user = identity.principal.name
        applying = [
            rule
            for subject in subjects
            if (held := self._index.get((subject, kind))) is not None
            for rule in held.all()
            if rule.host in (ANY_HOST, host)
        ]
        denies = [
            rule
            for rule in applying
            if rule.permission == Permission.DENY and rule.operation in (operation, Operation.ALL)
        ]
        if self._open_without_rules and identity.only_roles is None:
            return not any(
                deny.name == EVERYTHING and deny.pattern_type == PatternType.LITERAL
                for deny in denies
            )
        return any(
            _allowed_bits(rule) >> operation & 1
            and not any(_dominates(deny, rule, user) for deny in denies)
            for rule in applying
            if rule.permission == Permission.ALLOW
        )

    def _is_open(self, identity: Identity, kind: ResourceType, name: str) -> bool:
        """Whether every user may use a resource because no access rule names it."""
        if not self._open_without_rules:
            return False
        rules = self._named.get(kind)
        return rules is None or not any(rules.about(name, identity.principal.name))

    def _subjects(self, identity: Identity) -> list[str]:
        """The principals whose rules apply to a login: itself, its groups, the roles of both."""
        names = list(identity.names)
        roles = {role for name in names for role in self._bindings.get(name, ())}
        return names + _subjects_of_roles(sorted(roles))

    def _bits(
        self,
        subjects: Iterable[str],
        identity: Identity,
        host: str,
        kind: ResourceType,
        name: str,
        *,
        granted: int = 0,
    ) -> int:
        allowed, denied = granted, 0
        for subject in subjects:
            held = self._index.get((subject, kind))
            if held is None:
                continue
            for rule in held.about(name, identity.principal.name):
                if rule.host not in (ANY_HOST, host):
                    continue
                if rule.permission == Permission.DENY:
                    every = rule.operation == Operation.ALL
                    denied |= ALL_BITS if every else 1 << rule.operation
                else:
                    allowed |= _allowed_bits(rule)
        return allowed & ~denied


class GrantedRights:
    """The rights of one login from one address, as the authoriser sees them."""

    __slots__ = ("_authoriser", "_host", "_identity", "_refused")

    def __init__(
        self, authoriser: Authoriser, identity: Identity, host: str, refused: RefusalListener
    ) -> None:
        self._authoriser = authoriser
        self._identity = identity
        self._host = host
        self._refused = refused

    @property
    def version(self) -> int:
        """Changes with every change of the rules; never 0, which means no rules at all."""
        return self._authoriser.version

    def may(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether the operation is allowed on that resource."""
        return self._authoriser.allows(self._identity, self._host, operation, kind, name)

    def need(self, operation: Operation, kind: ResourceType, name: str) -> None:
        """Refuse, and audit, unless the operation is allowed on that resource."""
        if not self.may(operation, kind, name):
            self._refused(self._identity, self._host, operation, kind, name)
            raise not_allowed(self._identity, operation, kind, name)

    def may_somewhere(self, operation: Operation, kind: ResourceType) -> bool:
        """Whether the operation is allowed on any resource of that kind."""
        return self._authoriser.allows_somewhere(self._identity, self._host, operation, kind)

    def operations(self, kind: ResourceType, name: str) -> int:
        """Every allowed operation, as bits by number."""
        return self._authoriser.operations(self._identity, self._host, kind, name)


def _subjects_of_roles(roles: Iterable[str]) -> list[str]:
    return [f"{ROLE}:{role}" for role in roles]


def not_allowed(
    identity: Identity, operation: Operation, kind: ResourceType, name: str
) -> InvalidRequest:
    """The refusal of an operation."""
    return InvalidRequest(
        _REFUSALS[kind],
        f"{identity.principal} may not {operation.name}",
        subject=f"{kind.name} {name}",
    )


def _allowed_bits(rule: AclRule) -> int:
    if rule.operation == Operation.ALL:
        return ALL_BITS
    return 1 << rule.operation | _IMPLIED.get(rule.operation, 0)


def _dominates(deny: AclRule, allow: AclRule, user: str) -> bool:
    """Whether everything that ``allow`` covers is certainly denied."""
    if deny.pattern_type == PatternType.LITERAL and deny.name == EVERYTHING:
        return True
    if allow.pattern_type == PatternType.LITERAL and allow.name != EVERYTHING:
        return covers(deny, allow.name, user)
    if allow.pattern_type == PatternType.LITERAL:
        return deny.pattern_type == PatternType.GLOB and set(deny.name) == {"*"}
    if deny.pattern_type == PatternType.PREFIXED:
        globbed = allow.pattern_type == PatternType.GLOB
        prefix = NamePattern(allow.name).fixed_prefix if globbed else allow.name
        return prefix.startswith(deny.name)
    return deny.pattern_type == allow.pattern_type and deny.name == allow.name
