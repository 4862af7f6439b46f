"""Who may do what: deny first, nothing without a rule, patterns that cannot be widened."""

import pytest
from msgspec.structs import replace
from tests.unit.security.kit import rule, user

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.security.authorisation.acl import (
    OPERATIONS_OF,
    AclFilter,
    AclRule,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    check_rule,
)
from mainstem.security.authorisation.authoriser import AllRights, Authoriser, GrantedRights
from mainstem.security.authorisation.name_pattern import NamePattern
from mainstem.security.authorisation.roles import RoleRule, check_role
from mainstem.security.principals import Identity, parse_principal

READ, WRITE, DESCRIBE, DELETE = (
    Operation.READ,
    Operation.WRITE,
    Operation.DESCRIBE,
    Operation.DELETE,
)
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
ALICE, BOB = user("alice"), user("bob")


def authoriser(*rules: AclRule, **bindings: tuple[str, ...]) -> Authoriser:
    made = Authoriser(super_users=["User:root"])
    made.load(rules, {}, {f"User:{name}": roles for name, roles in bindings.items()})
    return made


def allows(made: Authoriser, who: Identity, operation: Operation, name: str) -> bool:
    return made.allows(who, "10.0.0.1", operation, TOPIC, name)


def test_without_a_rule_nobody_may_do_anything() -> None:
    assert not allows(authoriser(), ALICE, READ, "orders")


def test_everybody_may_use_what_no_rule_names_where_that_is_allowed() -> None:
    made = Authoriser(open_without_rules=True)
    rules = [
        rule("User:alice", READ, "orders"),
        rule("User:alice", WRITE, "logs.", pattern=PatternType.PREFIXED),
    ]
    made.load(rules, {}, {})
    assert allows(made, BOB, WRITE, "payments")
    assert made.allows_somewhere(BOB, "10.0.0.1", WRITE, TOPIC)
    assert allows(made, ALICE, READ, "orders")
    assert not allows(made, ALICE, WRITE, "orders"), "a rule names it, and does not allow this"
    assert not allows(made, BOB, READ, "orders")
    assert not allows(made, BOB, READ, "logs.web")
    made.load([*rules, rule("User:bob", READ, "*", deny=True)], {}, {})
    assert not allows(made, BOB, READ, "payments")
    assert not made.allows_somewhere(BOB, "10.0.0.1", READ, TOPIC)


def test_a_login_that_is_bound_to_roles_gets_no_more_from_missing_rules() -> None:
    made = Authoriser(open_without_rules=True)
    made.load([], {}, {})
    bound = replace(ALICE, only_roles=("consumer",))
    assert not allows(made, bound, WRITE, "payments")


def test_a_super_user_may_do_everything() -> None:
    made = authoriser(rule("User:root", READ, "orders", deny=True))
    assert allows(made, user("root"), READ, "orders")


def test_a_rule_allows_its_user_its_operation_on_its_topic_only() -> None:
    made = authoriser(rule("User:alice", READ, "orders"))
    assert allows(made, ALICE, READ, "orders")
    assert not allows(made, ALICE, WRITE, "orders")
    assert not allows(made, ALICE, READ, "payments")
    assert not allows(made, BOB, READ, "orders")


@pytest.mark.parametrize("given", [READ, WRITE, DELETE, Operation.ALTER])
def test_what_touches_a_topic_implies_seeing_it(given: Operation) -> None:
    made = authoriser(rule("User:alice", given, "orders"))
    assert allows(made, ALICE, DESCRIBE, "orders")


def test_altering_settings_implies_seeing_them() -> None:
    made = authoriser(rule("User:alice", Operation.ALTER_CONFIGS, "orders"))
    assert allows(made, ALICE, Operation.DESCRIBE_CONFIGS, "orders")
    assert not allows(made, ALICE, DESCRIBE, "orders")


def test_deny_wins_over_any_allow() -> None:
    made = authoriser(
        rule("User:*", Operation.ALL, "*"),
        rule("User:alice", WRITE, "ord", pattern=PatternType.PREFIXED, deny=True),
    )
    assert not allows(made, ALICE, WRITE, "orders")
    assert allows(made, ALICE, READ, "orders")
    assert allows(made, BOB, WRITE, "orders")


def test_denying_everything_denies_each_operation() -> None:
    made = authoriser(
        rule("User:alice", Operation.ALL, "*"),
        rule("User:alice", Operation.ALL, "secret", deny=True),
    )
    assert not any(allows(made, ALICE, operation, "secret") for operation in OPERATIONS_OF[TOPIC])


def test_a_rule_for_one_host_holds_there_only() -> None:
    made = authoriser(rule("User:alice", READ, "orders", host="10.0.0.1"))
    assert made.allows(ALICE, "10.0.0.1", READ, TOPIC, "orders")
    assert not made.allows(ALICE, "10.0.0.2", READ, TOPIC, "orders")


def test_a_changed_rule_counts_at_once() -> None:
    made = authoriser(rule("User:alice", READ, "orders"))
    assert allows(made, ALICE, READ, "orders")
    before = made.version
    made.load([], {}, {})
    assert not allows(made, ALICE, READ, "orders")
    assert made.version > before


def test_roles_hold_for_those_who_have_them() -> None:
    made = authoriser(alice=("consumer",), bob=("producer",))
    assert allows(made, ALICE, READ, "orders")
    assert not allows(made, ALICE, WRITE, "orders")
    assert allows(made, BOB, WRITE, "orders")
    assert not allows(made, BOB, READ, "orders")


def test_a_custom_role_is_made_of_rules() -> None:
    made = Authoriser()
    rules = (RoleRule(TOPIC, READ, "eu-*", PatternType.GLOB),)
    made.load([], {"europe": rules}, {"User:alice": ("europe",)})
    assert allows(made, ALICE, READ, "eu-orders")
    assert not allows(made, ALICE, READ, "us-orders")


def test_a_custom_role_cannot_replace_a_built_in_one() -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_role("admin", ())
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    made = Authoriser()
    made.load([], {"consumer": (RoleRule(TOPIC, Operation.ALL),)}, {"User:alice": ("consumer",)})
    assert not allows(made, ALICE, WRITE, "orders")


def test_read_only_changes_nothing() -> None:
    made = authoriser(alice=("read-only",))
    changing = {WRITE, Operation.CREATE, DELETE, Operation.ALTER, Operation.ALTER_CONFIGS}
    for kind, operations in OPERATIONS_OF.items():
        for operation in operations & changing:
            assert not made.allows(ALICE, "h", operation, kind, "kafka-cluster")
    assert not made.allows(ALICE, "h", READ, GROUP, "g")


def test_groups_of_a_token_are_named_by_rules() -> None:
    made = authoriser(rule("Group:ops", READ, "orders"))
    assert allows(made, user("carol", groups=("ops",)), READ, "orders")
    assert not allows(made, user("carol"), READ, "orders")


def test_a_token_with_roles_can_do_no_more_than_its_owner_and_no_more_than_its_roles() -> None:
    made = authoriser(rule("User:alice", READ, "orders"), rule("User:alice", WRITE, "orders"))
    limited = user("alice", only_roles=("consumer",))
    assert allows(made, limited, READ, "orders")
    assert not allows(made, limited, WRITE, "orders")
    assert not allows(made, limited, READ, "payments")
    root = user("root", only_roles=("consumer",))
    assert allows(made, root, READ, "orders")
    assert not allows(made, root, WRITE, "orders")


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("orders-*", "orders-eu", True),
        ("orders-*", "orders", False),
        ("*", "", True),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("*-*-x", "a-b-c-x", True),
        ("*a*a*a*a*b", "a" * 200, False),
        ("a.c", "abc", False),
        ("[ab]", "a", False),
    ],
)
def test_globs_know_two_wildcards_and_nothing_else(pattern: str, name: str, fits: bool) -> None:
    assert NamePattern(pattern).matches(name) is fits


@pytest.mark.parametrize("name", ["*", "a*", "?", "{user}", "a.*", ".*"])
def test_pattern_injection_a_user_named_like_a_pattern_gains_nothing(name: str) -> None:
    made = authoriser(rule("User:*", READ, "app.{user}.*", pattern=PatternType.GLOB))
    assert not allows(made, user(name), READ, "app.alice.orders")
    assert allows(made, user(name), READ, f"app.{name}.orders")
    assert allows(made, ALICE, READ, "app.alice.orders")


def test_pattern_injection_a_literal_rule_has_no_wildcards_inside() -> None:
    made = authoriser(rule("User:alice", READ, "orders*"))
    assert not allows(made, ALICE, READ, "orders-eu")


def test_writing_somewhere_is_enough_for_an_idempotent_producer() -> None:
    made = authoriser(rule("User:alice", WRITE, "orders"))
    assert made.allows_somewhere(ALICE, "h", WRITE, TOPIC)
    assert not made.allows_somewhere(BOB, "h", WRITE, TOPIC)


@pytest.mark.parametrize(
    ("allow", "deny", "somewhere"),
    [
        (("orders", PatternType.LITERAL), ("orders", PatternType.LITERAL), False),
        (("orders", PatternType.LITERAL), ("ord", PatternType.PREFIXED), False),
        (("orders", PatternType.LITERAL), ("o*", PatternType.GLOB), False),
        (("orders", PatternType.LITERAL), ("other", PatternType.LITERAL), True),
        (("ord", PatternType.PREFIXED), ("o", PatternType.PREFIXED), False),
        (("ord", PatternType.PREFIXED), ("orders", PatternType.PREFIXED), True),
        (("ord*", PatternType.GLOB), ("o", PatternType.PREFIXED), False),
        (("*", PatternType.LITERAL), ("o", PatternType.PREFIXED), True),
        (("*", PatternType.LITERAL), ("*", PatternType.LITERAL), False),
        (("*", PatternType.LITERAL), ("*", PatternType.GLOB), False),
    ],
)
def test_an_allow_that_is_wholly_denied_is_none(
    allow: tuple[str, PatternType], deny: tuple[str, PatternType], somewhere: bool
) -> None:
    made = authoriser(
        rule("User:alice", WRITE, allow[0], pattern=allow[1]),
        rule("User:*", Operation.ALL, deny[0], pattern=deny[1], deny=True),
    )
    assert made.allows_somewhere(ALICE, "h", WRITE, TOPIC) is somewhere


def test_a_refusal_is_raised_and_written_down() -> None:
    seen: list[tuple[object, ...]] = []
    rights = GrantedRights(authoriser(), ALICE, "h", lambda *facts: seen.append(facts))
    for kind, code in [
        (TOPIC, ErrorCode.NOT_AUTHORIZED),
        (GROUP, ErrorCode.GROUP_NOT_AUTHORIZED),
        (CLUSTER, ErrorCode.CLUSTER_NOT_AUTHORIZED),
        (ResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_NOT_AUTHORIZED),
        (ResourceType.DELEGATION_TOKEN, ErrorCode.TOKEN_NOT_AUTHORIZED),
    ]:
        with pytest.raises(InvalidRequest) as refused:
            rights.need(DESCRIBE, kind, "x")
        assert refused.value.code is code
    assert len(seen) == 5
    assert not rights.may(READ, TOPIC, "x")
    assert len(seen) == 5, "a look is not a try"


def test_where_nothing_is_authorised_everything_is_allowed() -> None:
    rights = AllRights()
    rights.need(READ, TOPIC, "x")
    assert rights.may(READ, TOPIC, "x")
    assert rights.may_somewhere(READ, TOPIC)
    assert rights.operations(TOPIC, "x") >> READ & 1


@pytest.mark.parametrize(
    "wrong",
    [
        rule("User:a", Operation.IDEMPOTENT_WRITE, "t"),
        rule("User:a", READ, ""),
        rule("alice", READ, "t"),
        rule("User:", READ, "t"),
        rule("User:a", READ, "t", kind=ResourceType.ANY),
        rule("User:a", READ, "t", pattern=PatternType.MATCH),
        rule("User:a", Operation.ANY, "t"),
        rule("User:a", Operation.ALTER, "another-cluster", kind=CLUSTER),
        rule("User:a", READ, "t", host=""),
        rule("User:a", READ, "x" * 600, pattern=PatternType.GLOB),
        AclRule(TOPIC, PatternType.LITERAL, "t", "User:a", "*", READ, Permission.ANY),
    ],
)
def test_a_rule_that_could_never_apply_is_refused(wrong: AclRule) -> None:
    with pytest.raises(InvalidRequest):
        check_rule(wrong)


def test_filters_find_rules_by_their_parts_and_by_what_they_cover() -> None:
    prefixed = rule("User:alice", READ, "ord", pattern=PatternType.PREFIXED)
    literal = rule("User:bob", WRITE, "orders")
    everything = rule("User:bob", READ, "*")
    rules = [prefixed, literal, everything]

    def found(**parts: object) -> list[AclRule]:
        wanted = AclFilter(**parts)  # type: ignore[arg-type]
        return [each for each in rules if wanted.matches(each)]

    assert found() == rules
    assert found(principal="User:bob") == [literal, everything]
    assert found(name="orders", pattern_type=PatternType.LITERAL) == [literal]
    assert found(name="orders", pattern_type=PatternType.MATCH) == rules
    assert found(operation=READ) == [prefixed, everything]
    assert found(resource_type=GROUP) == []


def test_principals_have_a_kind_and_a_name() -> None:
    assert str(parse_principal("User:CN=a:b,O=c")) == "User:CN=a:b,O=c"
    for text in ("", "alice", ":alice", "User:", "User:" + "x" * 300):
        with pytest.raises(InvalidRequest):
            parse_principal(text)
