"""Rules, passwords, quotas and tokens, administered by the clients that people use.

Everything is a fact of the catalogue: it holds after a stop and after kill -9.
"""

import itertools
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import KafkaException
from confluent_kafka import admin as confluent_admin
from tests.integration.security import java_client, requests
from tests.integration.security.java_client import Java, Refusal
from tests.integration.security.kit import (
    ADMIN_PASSWORD,
    CLUSTER,
    USER_PASSWORD,
    Client,
    SecureNode,
    codes,
    rule,
)
from tests.integration.security.lasting import LastingNode

from mainstem.security.authorisation import acl

# Its annotations are narrower than what it takes.
ck: Any = confluent_admin

needs_java = pytest.mark.needs("java", "maven")
MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LastingNode]:
    with LastingNode(tmp_path_factory.mktemp("admin")) as made:
        yield made


@pytest.fixture(scope="module")
def java(node: LastingNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    with Java(tmp_path_factory.mktemp("java-log") / "log") as running:
        running.client("admin", sasl(node, "admin", ADMIN_PASSWORD))
        yield running


def sasl(
    node: SecureNode, user: str, password: str, mechanism: str = "SCRAM-SHA-256", **options: str
) -> dict[str, object]:
    found = java_client.settings(node, "SASL_SSL")
    return found | java_client.password(mechanism, user, password, **options)


def confluent(
    node: SecureNode, user: str = "admin", password: str = ADMIN_PASSWORD, **rest: object
) -> dict[str, Any]:
    return {
        "bootstrap.servers": node.address("SASL_SSL"),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(node.certificates.ca),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": password,
        "log_level": 0,
        **rest,
    }


def logs_in(node: SecureNode, user: str, password: str) -> bool:
    with Client(node.address("SASL_PLAINTEXT")) as client:
        answer = client.try_login("PLAIN", f"\0{user}\0{password}".encode())
        return bool(answer.error_code == 0)


def stop(node: LastingNode) -> None:
    assert node.stop() == 0


ENDS = itertools.cycle([LastingNode.kill9, stop])


def restarted(node: LastingNode) -> Iterator[str]:
    """What holds must hold now, and after a restart: by turns after kill -9 and after a stop."""
    yield "now"
    next(ENDS)(node)
    node.start()
    yield "after a restart"


# What librdkafka's constructors want, in the order of a sentence.


def binding(
    pattern: str, name: str, user: str, operation: str, permission: str, kind: str = "TOPIC"
) -> Any:
    return ck.AclBinding(
        ck.ResourceType[kind], name, ck.ResourcePatternType[pattern], f"User:{user}", "*",
        ck.AclOperation[operation], ck.AclPermissionType[permission],
    )  # fmt: skip


def rules_of(user: str, name: str | None = None, pattern: str = "ANY", kind: str = "ANY") -> Any:
    return ck.AclBindingFilter(
        ck.ResourceType[kind], name, ck.ResourcePatternType[pattern], f"User:{user}", None,
        ck.AclOperation.ANY, ck.AclPermissionType.ANY,
    )  # fmt: skip


# confluent-kafka


def test_librdkafka_creates_describes_and_deletes_rules(node: LastingNode) -> None:
    admin = ck.AdminClient(confluent(node))
    made = [
        binding("PREFIXED", "ck-", "ck", "READ", "ALLOW"),
        binding("LITERAL", "ck-secret", "ck", "READ", "DENY"),
        binding("LITERAL", "*", "ck", "ALL", "ALLOW", "GROUP"),
    ]
    for future in admin.create_acls(made).values():
        future.result(10)

    def found(wanted: Any) -> set[Any]:
        asker = ck.AdminClient(confluent(node))
        return set(asker.describe_acls(wanted).result(10))

    for _ in restarted(node):
        assert found(rules_of("ck")) == set(made)
        assert found(rules_of("ck", "ck-secret", "MATCH")) == set(made)  # "*" fits it, too
        assert found(rules_of("ck", "ck-secret", "LITERAL")) == {made[1]}
    admin = ck.AdminClient(confluent(node))
    deletions = admin.delete_acls([rules_of("ck", kind="TOPIC")])
    [deleted] = [future.result(10) for future in deletions.values()]
    assert set(deleted) == set(made[:2])
    for _ in restarted(node):
        assert found(rules_of("ck")) == {made[2]}


def test_librdkafka_hears_that_it_may_not_administer(node: LastingNode) -> None:
    node.make_user("small")
    admin = ck.AdminClient(confluent(node, "small", USER_PASSWORD))
    allow, everything = binding("LITERAL", "x", "small", "ALL", "ALLOW"), rules_of("small")
    deletion = ck.UserScramCredentialDeletion("admin", ck.ScramMechanism.SCRAM_SHA_256)
    asked: dict[str, Any] = {
        "allow": admin.create_acls([allow])[allow],
        "take away": admin.delete_acls([everything])[everything],
        "lock out": admin.alter_user_scram_credentials([deletion])["admin"],
    }
    for what, future in asked.items():
        with pytest.raises(KafkaException) as refusal:
            future.result(10)
        assert refusal.value.args[0].name() == "CLUSTER_AUTHORIZATION_FAILED", what
    assert logs_in(node, "admin", ADMIN_PASSWORD)


def test_librdkafka_sets_describes_and_takes_away_a_password(node: LastingNode) -> None:
    info = ck.ScramCredentialInfo(ck.ScramMechanism.SCRAM_SHA_512, 5_000)
    admin = ck.AdminClient(confluent(node))
    upsert = ck.UserScramCredentialUpsertion("carla", info, b"first", b"some salt")
    admin.alter_user_scram_credentials([upsert])["carla"].result(10)
    for _ in restarted(node):
        admin = ck.AdminClient(confluent(node))
        [held] = (
            admin.describe_user_scram_credentials(["carla"])["carla"]
            .result(10)
            .scram_credential_infos
        )
        assert (held.mechanism, held.iterations) == (ck.ScramMechanism.SCRAM_SHA_512, 5_000)
        assert ck.AdminClient(confluent(node, "carla", "first")).list_topics(timeout=10).brokers
        assert logs_in(node, "carla", "first")
        assert not logs_in(node, "carla", "second")
    admin = ck.AdminClient(confluent(node))
    deletion = ck.UserScramCredentialDeletion("carla", ck.ScramMechanism.SCRAM_SHA_512)
    admin.alter_user_scram_credentials([deletion])["carla"].result(10)
    assert not logs_in(node, "carla", "first")
    admin = ck.AdminClient(confluent(node))
    with pytest.raises(KafkaException) as refusal:
        admin.describe_user_scram_credentials(["carla"])["carla"].result(10)
    assert refusal.value.args[0].name() == "RESOURCE_NOT_FOUND"


# Roles and API tokens, which Kafka's protocol does not know


def test_roles_and_api_tokens_hold_after_a_restart(node: LastingNode) -> None:
    def web(method: str, path: str, body: object = None) -> Any:
        answer = httpx.request(method, f"http://{node.http}/v1/{path}", json=body, timeout=10)
        assert answer.is_success, answer.text
        return answer.json()

    with node.client() as admin:
        admin.ask(*requests.create_topic("roles"))
    node.make_user("rosa")
    web("PUT", "roles/roles-writer", {"rules": [
        {"resource": "topic", "operation": "write", "name": "roles"}]})  # fmt: skip
    web("PUT", "roles/roles-writer/members/rosa")
    made = web("POST", "tokens", {"user": "rosa", "name": "script"})
    for _ in restarted(node):
        with node.login("rosa") as client:
            assert codes(client.ask(*requests.produce("roles"))) == {0}
            assert 29 in codes(client.ask(*requests.fetch("roles")))
        with Client(node.address("SASL_PLAINTEXT")) as client:
            message = f"n,,\x01auth=Bearer {made['token']}\x01\x01".encode()
            assert client.try_login("OAUTHBEARER", message).auth_bytes == b""
            assert codes(client.ask(*requests.produce("roles"))) == {0}
    web("DELETE", f"tokens/{made['id']}")
    web("DELETE", "roles/roles-writer/members/rosa")
    for _ in restarted(node):
        with node.login("rosa") as client:
            assert 29 in codes(client.ask(*requests.produce("roles")))
        with Client(node.address("SASL_PLAINTEXT")) as client:
            assert client.try_login("OAUTHBEARER", message).auth_bytes != b""


# Java


@needs_java
def test_java_creates_describes_and_deletes_rules(node: LastingNode, java: Java) -> None:
    rules = {
        ("TOPIC", "LITERAL", "j", "User:j", "*", "WRITE", "ALLOW"),
        ("TOPIC", "PREFIXED", "j-", "User:j", "127.0.0.1", "READ", "DENY"),
        ("CLUSTER", "LITERAL", "kafka-cluster", "User:j", "*", "IDEMPOTENT_WRITE", "ALLOW"),
        ("TRANSACTIONAL_ID", "LITERAL", "t", "User:j", "*", "TWO_PHASE_COMMIT", "ALLOW"),
        ("USER", "LITERAL", "owner", "User:j", "*", "CREATE_TOKENS", "ALLOW"),
    }
    for each in rules:
        java.do("acl-create", "admin", *each)
    for _ in restarted(node):
        shown = java.do("acl-list", "admin", "ANY", "ANY", "-", "User:j")
        assert shown.count("principal=User:j") == len(rules)
        for kind, pattern, name, *_rest, operation, permission in rules:
            assert f"(pattern=ResourcePattern(resourceType={kind}, name={name}, " in shown
            assert f"patternType={pattern})" in shown
            assert f"operation={operation}, permissionType={permission})" in shown
    gone = java.do("acl-delete", "admin", "TOPIC", "MATCH", "j-x", "User:j")
    assert gone.count("principal=User:j") == 1
    assert java.do("acl-list", "admin", "ANY", "ANY", "-", "User:j").count("User:j") == 4
    wrong = ("TOPIC", "LITERAL", "j", "User:j", "*", "CLUSTER_ACTION", "ALLOW")
    with pytest.raises(Refusal, match="InvalidRequestException"):
        java.do("acl-create", "admin", *wrong)


@needs_java
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_java_sets_describes_and_takes_away_a_password(
    node: LastingNode, java: Java, mechanism: str
) -> None:
    user = f"jenny-{mechanism}"
    java.do("scram-set", "admin", user, mechanism, "one", 4_096)
    java.do("scram-set", "admin", user, mechanism, "two", 8_192)
    for _ in restarted(node):
        shown = java.do("scram-list", "admin", user)
        assert f"mechanism={mechanism.replace('-', '_')}, iterations=8192" in shown
        client = java.client("jenny", sasl(node, user, "two", mechanism))
        java.do("topics", client)
        client = java.client("jenny", sasl(node, user, "one", mechanism))
        with pytest.raises(Refusal, match="SaslAuthenticationException"):
            java.do("topics", client)
    other = next(each for each in MECHANISMS if each != mechanism)
    client = java.client("jenny", sasl(node, user, "two", other))
    with pytest.raises(Refusal, match="SaslAuthenticationException"):
        java.do("topics", client)
    java.do("scram-delete", "admin", user, mechanism)
    with pytest.raises(Refusal, match="ResourceNotFoundException"):
        java.do("scram-list", "admin", user)
    with pytest.raises(Refusal, match="ResourceNotFoundException"):
        java.do("scram-delete", "admin", user, mechanism)
    for iterations in (100, 20_000):
        with pytest.raises(Refusal, match="UnacceptableCredentialException"):
            java.do("scram-set", "admin", user, mechanism, "p", iterations)


@needs_java
def test_java_sets_lists_and_takes_away_quotas(node: LastingNode, java: Java) -> None:
    limits = {
        ("producer_byte_rate", "1000.0", "user=q"),
        ("consumer_byte_rate", "2000.0", "user=q,client-id=c"),
        ("request_rate", "3000.0", "client-id="),
        ("connection_creation_rate", "4000.0", "ip=10.1.2.3"),
    }
    for each in limits:
        java.do("quota-set", "admin", *each)
    for _ in restarted(node):
        shown = java.do("quota-list", "admin")
        for name, value, _ in limits:
            assert f"{name}={value}" in shown
        assert "{client-id=null}{request_rate" in shown.replace("=null, ", "=null")
    for name, _, entity in limits:
        java.do("quota-set", "admin", name, "none", entity)
    assert java.do("quota-list", "admin") == ""
    for wrong in (
        ("producer_byte_rate", "0.0", "user=q"),
        ("nonsense", "1.0", "user=q"),
        ("connection_creation_rate", "1.0", "user=q"),
        ("producer_byte_rate", "1.0", "user=q,ip=10.0.0.1"),
    ):
        with pytest.raises(Refusal, match="InvalidRequestException"):
            java.do("quota-set", "admin", *wrong)


# Delegation tokens, from the first day to the last


def by_token(node: SecureNode, token: str, mechanism: str = "SCRAM-SHA-256") -> dict[str, object]:
    token_id, hmac = token.split()
    return sasl(node, token_id, hmac, mechanism, tokenauth="true")


@needs_java
def test_a_delegation_token_lives_as_kafkas_do(node: LastingNode, java: Java) -> None:
    node.make_user("dora", rule("dora", acl.Operation.ALL, (acl.ResourceType.TOPIC, "doras")))
    node.make_user("rene")
    dora = java.client("dora", sasl(node, "dora", USER_PASSWORD))
    rene = java.client("rene", sasl(node, "rene", USER_PASSWORD))
    java.do("create", dora, "doras")
    token = java.do("token-create", dora, -1, "dora", "rene")
    token_id, hmac = token.split()
    assert token_id in java.do("token-list", dora).split()
    for _ in restarted(node):
        for mechanism in MECHANISMS:
            bearer = java.client("bearer", by_token(node, token, mechanism))
            java.do("produce", bearer, "doras", "as if I were dora")
    with pytest.raises(Refusal, match="UnsupportedByAuthenticationException"):
        java.do("token-create", bearer, -1)
    with pytest.raises(Refusal, match="TopicAuthorizationException"):
        java.do("produce", bearer, "doras-not", "x")
    until = int(java.do("token-renew", rene, hmac, 3_600_000))
    assert abs(until / 1000 - time.time() - 3_600) < 60
    soon = int(java.do("token-expire", dora, hmac, 1_500))
    java.do("topics", bearer)
    time.sleep(max(0, soon / 1000 - time.time()) + 0.1)
    for _ in restarted(node):
        with pytest.raises(Refusal, match="SaslAuthenticationException"):
            java.do("topics", bearer)
        with pytest.raises(Refusal, match=r"DelegationToken(Expired|NotFound)Exception"):
            java.do("token-renew", dora, hmac, 1_000)


@needs_java
def test_tokens_are_dealt_with_by_those_who_may(node: LastingNode, java: Java) -> None:
    for name in ("owen", "stan"):
        node.make_user(name)
        java.client(name, sasl(node, name, USER_PASSWORD))
    token = java.do("token-create", "owen", -1)
    token_id, hmac = token.split()
    assert java.do("token-list", "stan") == ""
    for verb in ("token-renew", "token-expire"):
        with pytest.raises(Refusal, match="DelegationTokenOwnerMismatchException"):
            java.do(verb, "stan", hmac, 1_000)
        with pytest.raises(Refusal, match="DelegationTokenNotFoundException"):
            java.do(verb, "stan", "AAAA", 1_000)
    with pytest.raises(Refusal, match=r"DelegationTokenAuthorizationException|Authorization"):
        java.do("token-create", "stan", -1, "owen")
    with node.client() as admin:
        admin.allow(rule("stan", acl.Operation.CREATE_TOKENS, (acl.ResourceType.USER, "User:owen")))
    for_owen = java.do("token-create", "stan", -1, "owen")
    java.do("topics", java.client("owen-2", by_token(node, for_owen)))
    with node.client() as admin:
        admin.allow(
            rule("stan", acl.Operation.DESCRIBE, (acl.ResourceType.DELEGATION_TOKEN, token_id))
        )
    assert token_id in java.do("token-list", "stan").split()
    java.do("token-expire", "owen", hmac, -1)
    assert token_id not in java.do("token-list", "owen").split()
    with pytest.raises(Refusal, match="SaslAuthenticationException"):
        java.do("topics", java.client("owen-3", by_token(node, token)))


@needs_java
@pytest.mark.parametrize("lifetime_ms", [1_200])
def test_a_login_by_token_ends_with_the_token(
    node: LastingNode, java: Java, lifetime_ms: int
) -> None:
    node.make_user("brief", rule("brief", acl.Operation.DESCRIBE, CLUSTER))
    java.client("brief", sasl(node, "brief", USER_PASSWORD))
    token = java.do("token-create", "brief", lifetime_ms)
    bearer = java.client("short", by_token(node, token))
    java.do("topics", bearer)
    time.sleep(lifetime_ms / 1000 + 0.2)
    with pytest.raises(Refusal, match="SaslAuthenticationException"):
        java.do("topics", bearer)
