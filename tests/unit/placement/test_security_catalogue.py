"""Users, rules, roles, quotas and tokens as facts: decided, replayed, kept in the snapshot."""

from typing import Any

import msgspec
import pytest

from mainstem.model import scram
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.placement.changes import security_commands as records
from mainstem.placement.changes.command_and_fact import Command
from mainstem.placement.changes.commands import AnyFact, CatalogueState
from mainstem.placement.persistence.journal_storage import StoredJournal
from mainstem.placement.service import replayed
from mainstem.placement.state.catalogue import Catalogue
from mainstem.security.authentication.passwords import Credentials
from mainstem.security.authentication.tokens import ApiToken, DelegationToken
from mainstem.security.authorisation.acl import (
    AclFilter,
    AclRule,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from mainstem.security.authorisation.roles import RoleRule
from mainstem.security.quotas import PRODUCE_BYTES

READ_ORDERS = AclRule(
    ResourceType.TOPIC,
    PatternType.LITERAL,
    "orders",
    "User:a",
    "*",
    Operation.READ,
    Permission.ALLOW,
)
WRITE_ALL = AclRule(
    ResourceType.TOPIC, PatternType.GLOB, "o*", "User:b", "*", Operation.WRITE, Permission.DENY
)
KEYS = scram.credential_of("SCRAM-SHA-256", b"x" * 32, salt=b"salt", iterations=4096)
LARGE_KEYS = scram.credential_of("SCRAM-SHA-512", b"x" * 64, salt=b"salt", iterations=4096)
TOKEN = ApiToken("id", "User:a", b"digest", "ci", 5, roles=("consumer",))
DELEGATED = DelegationToken("d", "User:a", "User:a", ("User:r",), 0, 10, 20)
ENTITY = (("client-id", None), ("user", "a"))


class Shop:
    """A catalogue whose facts are kept, as a journal keeps them."""

    def __init__(self) -> None:
        self.catalogue = Catalogue()
        self.journal: list[bytes] = []

    def do(self, command: Command[Any]) -> Any:
        decision = self.catalogue.decide(command, now_ms=0)
        for fact in decision.facts:
            self.journal.append(msgspec.json.encode(fact))
            self.catalogue.replay(fact)
        return decision.reply

    def refused(self, command: Command[Any]) -> ErrorCode:
        with pytest.raises(InvalidRequest) as refusal:
            self.do(command)
        return refusal.value.code


@pytest.fixture
def shop() -> Shop:
    return Shop()


def filled(shop: Shop) -> Shop:
    shop.do(records.SetCredentials("a", Credentials("$argon2id$...", (KEYS, LARGE_KEYS))))
    shop.do(records.AlterScram("b", upserts=(KEYS,)))
    shop.do(records.CreateAcls((READ_ORDERS, WRITE_ALL)))
    shop.do(records.SetRole("eu", (RoleRule(ResourceType.TOPIC, Operation.READ, "eu-"),)))
    shop.do(records.BindRole("User:a", "eu"))
    shop.do(records.BindRole("User:a", "admin"))
    shop.do(records.AlterQuota(ENTITY, {PRODUCE_BYTES: 1.5}))
    shop.do(records.CreateApiToken(TOKEN))
    shop.do(records.SetDelegationToken(DELEGATED, is_new=True))
    shop.do(records.SetTokenSecret(b"secret"))
    return shop


def test_a_restart_finds_everything_in_the_journal_and_in_the_snapshot(shop: Shop) -> None:
    before = filled(shop).catalogue.state()
    assert before.security.token_secret == b"secret"
    from_journal = replayed(StoredJournal(None, tuple(shop.journal)), "the journal")
    assert from_journal.state() == before
    from_snapshot = replayed(StoredJournal(msgspec.json.encode(before), ()), "the journal")
    assert from_snapshot.state() == before
    assert shop.catalogue.fork().state() == before


def test_whoever_holds_the_table_sees_another_nodes_snapshot(shop: Shop) -> None:
    table = shop.catalogue.security
    users, rules = table.users, table.rules
    state = filled(Shop()).catalogue.state()
    shop.catalogue.become(state)
    assert shop.catalogue.security is table
    assert (table.users, table.rules) == (users, rules)
    assert users
    assert shop.catalogue.state() == state


def test_an_older_snapshot_has_no_security_and_is_read_all_the_same() -> None:
    state = msgspec.json.decode(b'{"cluster_id":"c"}', type=CatalogueState)
    assert Catalogue(state).security.state() == records.SecurityState()


def test_every_fact_of_security_survives_its_bytes(shop: Shop) -> None:
    filled(shop)
    for command in (
        records.DeleteAcls((AclFilter(),)),
        records.DeleteRole("eu"),
        records.DeleteApiToken("id"),
        records.DeleteDelegationTokens(("d",)),
        records.DeleteUser("b"),
    ):
        shop.do(command)
    kinds = {type(msgspec.json.decode(line, type=AnyFact)) for line in shop.journal}
    assert kinds == {
        records.UserSet, records.UserDeleted, records.AclsCreated, records.AclsDeleted,
        records.RoleSet, records.RoleDeleted, records.RolesBound, records.QuotaSet,
        records.ApiTokenSet, records.ApiTokenDeleted, records.DelegationTokenSet,
        records.DelegationTokensDeleted, records.TokenSecretSet,
    }  # fmt: skip


def test_new_scram_keys_end_the_older_password(shop: Shop) -> None:
    shop.do(records.SetCredentials("a", Credentials("$argon2id$...", (KEYS,))))
    shop.do(records.AlterScram("a", upserts=(LARGE_KEYS,)))
    assert shop.catalogue.security.credentials("a") == Credentials(None, (KEYS, LARGE_KEYS))


def test_a_user_without_any_key_is_gone(shop: Shop) -> None:
    shop.do(records.AlterScram("b", upserts=(KEYS,)))
    shop.do(records.BindRole("User:b", "producer"))
    shop.do(records.AlterScram("b", deletions=("SCRAM-SHA-256",)))
    assert shop.catalogue.security.credentials("b") is None
    assert not shop.catalogue.security.bindings


def test_a_key_that_is_not_there_cannot_be_deleted(shop: Shop) -> None:
    gone = records.AlterScram("b", deletions=("SCRAM-SHA-256",))
    assert shop.refused(gone) is ErrorCode.UNKNOWN_RESOURCE


@pytest.mark.parametrize("iterations", [0, 4095, 16_385])
def test_iterations_have_bounds(shop: Shop, iterations: int) -> None:
    weak = scram.credential_of("SCRAM-SHA-256", b"x", salt=b"s", iterations=iterations)
    refusal = shop.refused(records.AlterScram("a", upserts=(weak,)))
    assert refusal is ErrorCode.UNACCEPTABLE_CREDENTIAL


@pytest.mark.parametrize("name", ["", "*", "a\nb", "x" * 256])
def test_names_that_nobody_can_have_are_refused(shop: Shop, name: str) -> None:
    refusal = shop.refused(records.SetCredentials(name, Credentials("$argon2id$...")))
    assert refusal is ErrorCode.UNACCEPTABLE_CREDENTIAL


def test_a_deleted_user_leaves_no_token_and_no_role_behind(shop: Shop) -> None:
    filled(shop).do(records.DeleteUser("a"))
    left = shop.catalogue.security
    assert [len(left.bindings), len(left.api_tokens), len(left.delegation_tokens)] == [0, 0, 0]
    assert shop.refused(records.DeleteUser("a")) is ErrorCode.UNKNOWN_RESOURCE


def test_creating_a_rule_twice_makes_one(shop: Shop) -> None:
    shop.do(records.CreateAcls((READ_ORDERS, READ_ORDERS)))
    written = len(shop.journal)
    shop.do(records.CreateAcls((READ_ORDERS,)))
    assert list(shop.catalogue.security.rules) == [READ_ORDERS]
    assert len(shop.journal) == written, "what changes nothing is not written"


def test_one_bad_rule_refuses_all_of_its_command(shop: Shop) -> None:
    bad = msgspec.structs.replace(READ_ORDERS, name="")
    assert shop.refused(records.CreateAcls((READ_ORDERS, bad))) is ErrorCode.INVALID_REQUEST
    assert not shop.catalogue.security.rules


def test_each_filter_is_told_what_it_found(shop: Shop) -> None:
    shop.do(records.CreateAcls((READ_ORDERS, WRITE_ALL)))
    reply = shop.do(
        records.DeleteAcls((AclFilter(principal="User:a"), AclFilter(), AclFilter(host="h")))
    )
    assert reply == ((READ_ORDERS,), (READ_ORDERS, WRITE_ALL), ())
    assert not shop.catalogue.security.rules


def test_a_deleted_role_is_nobodys(shop: Shop) -> None:
    filled(shop).do(records.DeleteRole("eu"))
    assert shop.catalogue.security.bindings == {"User:a": ("admin",)}


def test_roles_that_are_not_there_are_neither_given_nor_taken(shop: Shop) -> None:
    for command in (
        records.BindRole("User:a", "nonsense"),
        records.UnbindRole("User:a", "admin"),
        records.DeleteRole("nonsense"),
    ):
        assert shop.refused(command) is ErrorCode.UNKNOWN_RESOURCE
    assert shop.refused(records.DeleteRole("admin")) is ErrorCode.POLICY_VIOLATION
    assert shop.refused(records.SetRole("admin", ())) is ErrorCode.POLICY_VIOLATION


def test_a_quota_is_changed_limit_by_limit_and_gone_with_its_last(shop: Shop) -> None:
    shop.do(records.AlterQuota(ENTITY, {PRODUCE_BYTES: 1.0, "request_rate": 2.0}))
    shop.do(records.AlterQuota(ENTITY, {PRODUCE_BYTES: None}))
    assert shop.catalogue.security.limits(ENTITY) == {"request_rate": 2.0}
    shop.do(records.AlterQuota(ENTITY, {"request_rate": None}))
    assert not list(shop.catalogue.security.quotas())
    assert shop.refused(records.AlterQuota(ENTITY, {"nonsense": None})) is ErrorCode.INVALID_REQUEST


def test_an_entity_is_the_same_in_any_order(shop: Shop) -> None:
    shop.do(records.AlterQuota((("user", "a"), ("client-id", "c")), {PRODUCE_BYTES: 1.0}))
    shop.do(records.AlterQuota((("client-id", "c"), ("user", "a")), {PRODUCE_BYTES: 2.0}))
    assert len(list(shop.catalogue.security.quotas())) == 1


def test_the_secret_of_tokens_is_set_once(shop: Shop) -> None:
    assert shop.do(records.SetTokenSecret(b"first")) == b"first"
    assert shop.do(records.SetTokenSecret(b"second")) == b"first"


def test_tokens_that_are_gone_cannot_be_renewed(shop: Shop) -> None:
    command = records.SetDelegationToken(DELEGATED, is_new=False)
    assert shop.refused(command) is ErrorCode.UNKNOWN_TOKEN
    assert shop.refused(records.DeleteApiToken("x")) is ErrorCode.UNKNOWN_TOKEN


def test_a_token_cannot_have_a_role_that_is_not_there(shop: Shop) -> None:
    token = msgspec.structs.replace(TOKEN, roles=("nonsense",))
    assert shop.refused(records.CreateApiToken(token)) is ErrorCode.UNKNOWN_RESOURCE
