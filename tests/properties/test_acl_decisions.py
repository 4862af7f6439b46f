"""Who may do what: the indexed, remembering authoriser against one that reads every rule."""

import re
from collections.abc import Iterable

from hypothesis import example, given, settings
from hypothesis import strategies as st

from mainstem.security.authorisation.acl import (
    AclRule,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from mainstem.security.authorisation.authoriser import ALL_BITS, Authoriser
from mainstem.security.authorisation.name_pattern import NamePattern
from mainstem.security.authorisation.roles import BUILT_IN, RoleRule
from mainstem.security.principals import GROUP, USER, Identity, Principal

O, R, P = Operation, ResourceType, PatternType  # noqa: E741 - read in columns

# Few letters, so that patterns, names and users meet.
NAMES = st.text("ab*", min_size=1, max_size=4)
GLOBS = st.lists(st.sampled_from(["a", "b", "*", "?", "{user}"]), min_size=1, max_size=4)
USERS = st.sampled_from(["a", "ab", "*a", "root"])
HOSTS = st.sampled_from(["h1", "h2"])
KINDS = st.sampled_from([R.TOPIC, R.GROUP, R.CLUSTER, R.TRANSACTIONAL_ID])
EVERY = [operation for operation in O if operation > O.ALL]
OPERATIONS = st.sampled_from(EVERY)
ROLES = st.sampled_from(["mine", "other", *BUILT_IN])
GIVERS = st.sampled_from([Permission.ALLOW, Permission.ALLOW, Permission.DENY])
PATTERNS = st.tuples(st.sampled_from([P.LITERAL, P.PREFIXED]), NAMES) | st.tuples(
    st.just(P.GLOB), GLOBS.map("".join)
)
IMPLIES = {
    O.DESCRIBE: {O.READ, O.WRITE, O.DELETE, O.ALTER},
    O.DESCRIBE_CONFIGS: {O.ALTER_CONFIGS},
}


@st.composite
def rules(draw: st.DrawFn) -> AclRule:
    pattern, name = draw(PATTERNS)
    who = draw(st.sampled_from(["User:a", "User:ab", "User:*a", "User:root", "User:*", "Group:g"]))
    host = draw(st.sampled_from(["*", "*", "h1"]))
    operation = draw(OPERATIONS | st.just(O.ALL))
    return AclRule(draw(KINDS), pattern, name, who, host, operation, draw(GIVERS))


@st.composite
def role_rules(draw: st.DrawFn) -> RoleRule:
    pattern, name = draw(PATTERNS)
    operation = draw(OPERATIONS | st.just(O.ALL))
    return RoleRule(draw(KINDS), operation, name, pattern, draw(GIVERS))


@st.composite
def identities(draw: st.DrawFn) -> Identity:
    groups = draw(st.sampled_from([(), ("g",), ("g", "h")]))
    limit = draw(st.none() | st.lists(ROLES, max_size=2).map(tuple))
    return Identity(Principal(USER, draw(USERS)), groups=groups, only_roles=limit)


RULES = st.lists(rules(), max_size=12)
OWN_ROLES = st.dictionaries(
    st.sampled_from(["mine", "other"]), st.lists(role_rules(), max_size=4).map(tuple)
)
BINDINGS = st.dictionaries(
    st.sampled_from(["User:a", "User:ab", "User:*a", "Group:g", "User:*"]),
    st.lists(ROLES, max_size=3).map(tuple),
    max_size=3,
)
ASKED = st.tuples(identities(), HOSTS, KINDS, NAMES)


def fits(pattern: PatternType, text: str, name: str, user: str) -> bool:
    if pattern is P.LITERAL:
        return text in ("*", name)
    if pattern is P.PREFIXED:
        return name.startswith(text)
    wild = {"*": ".*", "?": ".", "{user}": re.escape(user)}
    parts = re.split(r"(\*|\?|\{user\})", text)
    expression = "".join(wild.get(part, re.escape(part)) for part in parts)
    return re.fullmatch(expression, name, re.DOTALL) is not None


def elsewhere(
    asked: Iterable[tuple[Identity, str, ResourceType, str]],
) -> list[tuple[Identity, str, ResourceType, str]]:
    return [(who, "h2" if host == "h1" else "h1", kind, name) for who, host, kind, name in asked]


class NaiveAuthoriser:
    """Reads every rule, every time."""

    def __init__(
        self,
        given_rules: Iterable[AclRule],
        roles: dict[str, tuple[RoleRule, ...]],
        bindings: dict[str, tuple[str, ...]],
    ) -> None:
        self.rules = list(given_rules)
        for name, held in {**roles, **BUILT_IN}.items():
            for each in held:
                self.rules.append(
                    AclRule(
                        each.resource_type,
                        each.pattern_type,
                        each.name,
                        f"Role:{name}",
                        "*",
                        each.operation,
                        each.permission,
                    )
                )
        self.bindings = bindings

    def allows(
        self, who: Identity, host: str, kind: ResourceType, name: str
    ) -> dict[Operation, bool]:
        user = who.principal.name
        subjects = {f"User:{user}", "User:*", *(f"{GROUP}:{group}" for group in who.groups)}
        subjects |= {f"Role:{role}" for bound in subjects for role in self.bindings.get(bound, ())}
        own, limit = dict.fromkeys(EVERY, True), dict.fromkeys(EVERY, True)
        if user != "root":
            own = self._decide(subjects, user, host, (kind, name))
        if who.only_roles is not None:
            roles = {f"Role:{role}" for role in who.only_roles}
            limit = self._decide(roles, user, host, (kind, name))
        return {operation: own[operation] and limit[operation] for operation in EVERY}

    def _decide(
        self, subjects: set[str], user: str, host: str, resource: tuple[ResourceType, str]
    ) -> dict[Operation, bool]:
        concerned = [
            rule
            for rule in self.rules
            if rule.principal in subjects
            and rule.resource_type is resource[0]
            and rule.host in ("*", host)
            and fits(rule.pattern_type, rule.name, resource[1], user)
        ]
        denied = {rule.operation for rule in concerned if rule.permission is Permission.DENY}
        given_ = {rule.operation for rule in concerned if rule.permission is Permission.ALLOW}
        return {
            operation: not denied & {operation, O.ALL}
            and bool(given_ & {operation, O.ALL, *IMPLIES.get(operation, ())})
            for operation in EVERY
        }


@settings(max_examples=200)
@given(
    courses=st.lists(st.tuples(RULES, OWN_ROLES, BINDINGS), min_size=1, max_size=3),
    asked=st.lists(ASKED, min_size=1, max_size=8),
)
def test_every_decision_is_that_of_somebody_who_reads_all_rules(
    courses: list[
        tuple[list[AclRule], dict[str, tuple[RoleRule, ...]], dict[str, tuple[str, ...]]]
    ],
    asked: list[tuple[Identity, str, ResourceType, str]],
) -> None:
    authoriser = Authoriser(super_users=["User:root"])
    for course in courses:
        authoriser.load(*course)
        oracle = NaiveAuthoriser(*course)
        for who, host, kind, name in [*asked, *elsewhere(asked), *asked]:  # at last from memory
            bits = authoriser.operations(who, host, kind, name)
            assert bits & ~ALL_BITS == 0
            for operation, expected in oracle.allows(who, host, kind, name).items():
                assert bool(bits >> operation & 1) == expected, (operation, name)
                assert authoriser.allows(who, host, operation, kind, name) == expected


@settings(max_examples=100)
@given(RULES, OWN_ROLES, BINDINGS, ASKED, OPERATIONS)
def test_who_may_do_something_to_one_resource_may_do_it_somewhere(
    given_rules: list[AclRule],
    roles: dict[str, tuple[RoleRule, ...]],
    bindings: dict[str, tuple[str, ...]],
    asked: tuple[Identity, str, ResourceType, str],
    operation: Operation,
) -> None:
    authoriser = Authoriser(super_users=["User:root"])
    authoriser.load(given_rules, roles, bindings)
    who, host, kind, name = asked
    if authoriser.allows(who, host, operation, kind, name):
        assert authoriser.allows_somewhere(who, host, operation, kind)


@settings(max_examples=100)
@given(RULES, ASKED, rules())
def test_a_further_deny_never_gives_and_a_further_allow_never_takes(
    given_rules: list[AclRule],
    asked: tuple[Identity, str, ResourceType, str],
    further: AclRule,
) -> None:
    before, after = Authoriser(), Authoriser()
    before.load(given_rules, {}, {})
    after.load([*given_rules, further], {}, {})
    had, has = before.operations(*asked), after.operations(*asked)
    if further.permission is Permission.DENY:
        assert has & ~had == 0
    else:
        assert had & ~has == 0


@given(GLOBS.map("".join), st.text("ab*?{}user", max_size=8), st.text("ab*?.{", max_size=3))
@example("{user}", "ab", "*")
@example("*a*b*a*b*a*", "abababababababababab", "")
def test_a_glob_is_the_expression_it_stands_for(pattern: str, name: str, user: str) -> None:
    assert NamePattern(pattern).matches(name, user) == fits(P.GLOB, pattern, name, user)
