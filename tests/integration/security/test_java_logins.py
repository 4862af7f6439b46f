"""Kafka's own client logs in with every mechanism over TLS, and says why when it may not."""

from collections.abc import Iterator

import pytest
import trustme
from tests.integration.security import java_client, requests
from tests.integration.security.issuer import Issuer, token
from tests.integration.security.java_client import Java, Refusal
from tests.integration.security.kit import ADMIN_PASSWORD, USER_PASSWORD, SecureNode, rule
from tests.integration.security.lasting import LastingNode

from mainstem.security.authorisation.acl import Operation, PatternType, ResourceType

pytestmark = [pytest.mark.needs("java", "maven"), pytest.mark.slow]

USER, TOPICS = "java", "java-"
PASSWORDS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
MECHANISMS = [*PASSWORDS, "OAUTHBEARER", "mTLS"]


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with Issuer() as running:
        yield running


@pytest.fixture(scope="module")
def node(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    with LastingNode(tmp_path_factory.mktemp("java"), issuer.settings) as made:
        made.make_user(
            USER,
            rule(USER, Operation.ALL, (ResourceType.TOPIC, TOPICS), pattern=PatternType.PREFIXED),
            rule(USER, Operation.ALL, (ResourceType.GROUP, TOPICS), pattern=PatternType.PREFIXED),
        )
        yield made


@pytest.fixture(scope="module")
def java(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    with Java(tmp_path_factory.mktemp("java-log") / "log") as running:
        allowed = f"{issuer.address}/token"
        running.do("property", "org.apache.kafka.sasl.oauthbearer.allowed.urls", allowed)
        yield running


def login(node: SecureNode, issuer: Issuer, mechanism: str, user: str = USER) -> dict[str, object]:
    if mechanism == "mTLS":
        # Java reads no certificate whose list of alternative names is empty.
        files = node.certificates.issue(user, "client.test")
        return java_client.settings(node, "SSL") | java_client.certificate(files)
    found = java_client.settings(node, "SASL_SSL")
    if mechanism == "OAUTHBEARER":
        return found | java_client.bearer(f"{issuer.address}/token", user)
    return found | java_client.password(mechanism, user, USER_PASSWORD)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_java_creates_produces_and_consumes_in_a_group(
    node: SecureNode, issuer: Issuer, java: Java, mechanism: str
) -> None:
    client = java.client(mechanism, login(node, issuer, mechanism))
    topic = f"{TOPICS}{mechanism}"
    java.do("create", client, topic)
    assert topic in java.do("topics", client).split()
    java.do("produce", client, topic, "hello")
    assert java.do("consume", client, topic, f"{topic}-group", "hello") == "hello"


@pytest.mark.parametrize("mechanism", PASSWORDS)
@pytest.mark.parametrize("user", [USER, "nobody"])
def test_java_is_refused_with_a_wrong_password_and_an_unknown_user_alike(
    node: SecureNode, java: Java, mechanism: str, user: str
) -> None:
    settings = java_client.settings(node, "SASL_SSL")
    settings |= java_client.password(mechanism, user, "wrong")
    client = java.client("wrong", settings)
    with pytest.raises(Refusal) as refusal:
        java.do("topics", client)
    assert str(refusal.value).startswith("SaslAuthenticationException: ")
    assert "wrong" not in str(refusal.value)
    assert user not in str(refusal.value)


FLAWS = {
    "expired": lambda: token(USER, exp=1_000_000_000, iat=999_999_000),
    "other-issuer": lambda: token(USER, iss="https://evil.test"),
    "other-audience": lambda: token(USER, aud="other"),
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_java_is_refused_with_a_token_that_does_not_hold(
    node: SecureNode, issuer: Issuer, java: Java, flaw: str
) -> None:
    issuer.flaws[flaw] = FLAWS[flaw]
    client = java.client(flaw, login(node, issuer, "OAUTHBEARER", flaw))
    with pytest.raises(Refusal, match="SaslAuthenticationException: the login failed"):
        java.do("topics", client)


def test_java_does_not_talk_to_a_node_of_another_authority(
    node: SecureNode, issuer: Issuer, java: Java
) -> None:
    other = node.certificates.folder / "other-ca.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    client = java.client("distrust", login(node, issuer, "PLAIN") | java_client.trust(other))
    with pytest.raises(Refusal, match="SslAuthenticationException"):
        java.do("topics", client)


def test_java_with_a_certificate_of_another_authority_is_nobody(
    node: SecureNode, java: Java
) -> None:
    issued = trustme.CA().issue_cert("client.test", common_name=USER)
    folder = node.certificates.folder
    files = folder / "stranger.pem", folder / "stranger.key"
    files[0].write_bytes(issued.cert_chain_pems[0].bytes())
    files[1].write_bytes(issued.private_key_pem.bytes())
    client = java.client(
        "stranger", java_client.settings(node, "SSL") | java_client.certificate(files)
    )
    with pytest.raises(Refusal, match="SslAuthenticationException"):
        java.do("topics", client)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "OAUTHBEARER", "mTLS"])
def test_java_hears_which_right_is_missing(
    node: SecureNode, issuer: Issuer, java: Java, mechanism: str
) -> None:
    with node.client() as admin:
        admin.ask(*requests.create_topic("foreign"))
    client = java.client(f"{mechanism}-limited", login(node, issuer, mechanism))
    refusals = {
        ("produce", "foreign", "x"): "TopicAuthorizationException",
        ("consume", "foreign", "java-g", "x"): "TopicAuthorizationException",
        ("consume", "java-PLAIN", "foreign", "x"): "GroupAuthorizationException",
        ("create", "foreign-too"): "TopicAuthorizationException",
        ("acl-list", "ANY", "ANY", "-", "-"): "ClusterAuthorizationException",
        ("quota-list",): "ClusterAuthorizationException",
    }
    for (verb, *words), expected in refusals.items():
        with pytest.raises(Refusal, match=expected):
            java.do(verb, client, *words)
    assert "foreign" not in java.do("topics", client).split()


def test_every_login_holds_after_kill9(node: LastingNode, issuer: Issuer, java: Java) -> None:
    node.kill9()
    node.start()
    for mechanism in MECHANISMS:
        client = java.client(mechanism, login(node, issuer, mechanism))
        java.do("produce", client, f"{TOPICS}PLAIN", f"again {mechanism}")
    admin = java_client.settings(node, "SASL_SSL")
    admin |= java_client.password("SCRAM-SHA-256", "admin", ADMIN_PASSWORD)
    assert f"principal=User:{USER}" in java.do(
        "acl-list", java.client("admin", admin), "ANY", "ANY", "-", "-"
    )
