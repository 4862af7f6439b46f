"""librdkafka logs in with every mechanism over TLS: topics, records, groups, and its own errors.

aiokafka and kafka-python meet the same node for what they can.
"""

import ssl
import time
import warnings
from collections.abc import Iterator
from typing import Any

import aiokafka
import aiokafka.errors
import pytest
import trustme
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import admin as confluent_admin
from tests.integration.security import requests
from tests.integration.security.issuer import Issuer, token
from tests.integration.security.kit import USER_PASSWORD, SecureNode, rule
from tests.integration.security.lasting import LastingNode

from mainstem.security.authorisation.acl import Operation, PatternType, ResourceType

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas the old way
    import kafka
    import kafka.errors

ck: Any = confluent_admin
USER, TOPICS, FOREIGN = "rd", "rd-", "foreign"
PASSWORDS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
MECHANISMS = [*PASSWORDS, "OAUTHBEARER", "mTLS"]


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with Issuer() as running:
        yield running


@pytest.fixture(scope="module")
def node(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LastingNode]:
    with LastingNode(tmp_path_factory.mktemp("rd"), issuer.settings) as made:
        made.make_user(
            USER,
            rule(USER, Operation.ALL, (ResourceType.TOPIC, TOPICS), pattern=PatternType.PREFIXED),
            rule(USER, Operation.ALL, (ResourceType.GROUP, TOPICS), pattern=PatternType.PREFIXED),
        )
        with made.client() as admin:
            admin.ask(*requests.create_topic(FOREIGN))
        yield made


def login(node: SecureNode, issuer: Issuer, mechanism: str, user: str = USER) -> dict[str, Any]:
    conf = {
        "bootstrap.servers": node.address("SSL" if mechanism == "mTLS" else "SASL_SSL"),
        "security.protocol": "SSL" if mechanism == "mTLS" else "SASL_SSL",
        "ssl.ca.location": str(node.certificates.ca),
        "log_level": 0,
    }
    if mechanism == "mTLS":
        certificate, key = node.certificates.issue(user)
        return conf | {
            "ssl.certificate.location": str(certificate),
            "ssl.key.location": str(key),
        }
    conf["sasl.mechanism"] = mechanism
    if mechanism == "OAUTHBEARER":
        return conf | {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": f"{issuer.address}/token",
            "sasl.oauthbearer.client.id": user,
            "sasl.oauthbearer.client.secret": "secret",
        }
    return conf | {"sasl.username": user, "sasl.password": USER_PASSWORD}


def produce(conf: dict[str, Any], topic: str, value: bytes) -> Any:
    """What the client says about one record: None, or its error."""
    said: list[Any] = []
    producer = Producer(conf | {"message.timeout.ms": 10_000})
    producer.produce(topic, value, callback=lambda error, _: said.append(error))
    assert producer.flush(15) == 0
    return said[0]


def consume(conf: dict[str, Any], topic: str, group: str) -> Any:
    """The first record of a topic as a member of a group, or the client's error."""
    consumer = Consumer(
        conf | {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.subscribe([topic])
    try:
        message = consumer.poll(20)
        assert message is not None, "nothing came"
        if message.error() is not None:
            return message.error()
        consumer.commit(message=message, asynchronous=False)
        return message.value()
    finally:
        consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_creates_produces_and_consumes_in_a_group(
    node: LastingNode, issuer: Issuer, mechanism: str
) -> None:
    conf, topic = login(node, issuer, mechanism), f"{TOPICS}{mechanism}"
    admin = ck.AdminClient(conf)
    admin.create_topics([ck.NewTopic(topic, 1, 1)])[topic].result(10)
    assert topic in admin.list_topics(timeout=10).topics
    assert FOREIGN not in admin.list_topics(timeout=10).topics
    assert produce(conf, topic, b"hello") is None
    assert consume(conf, topic, f"{topic}-group") == b"hello"


def failures(conf: dict[str, Any]) -> list[Any]:
    """What the client reports when it cannot get in."""
    errors: list[Any] = []
    admin = ck.AdminClient(conf | {"error_cb": errors.append})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=1)
    admin.poll(0.1)
    return errors


@pytest.mark.parametrize("mechanism", PASSWORDS)
@pytest.mark.parametrize("user", ["rd-guessed", "nobody"])
def test_librdkafka_is_refused_with_a_wrong_password_and_an_unknown_user_alike(
    node: LastingNode, issuer: Issuer, mechanism: str, user: str
) -> None:
    if user != "nobody":
        node.make_user(user)
    conf = login(node, issuer, mechanism, user) | {"sasl.password": "wrong"}
    errors = [error for error in failures(conf) if error.name() == "_AUTHENTICATION"]
    assert errors
    assert all("wrong" not in str(error) and user not in str(error) for error in errors)


FLAWS = {
    "expired": lambda: token(USER, exp=int(time.time()) - 600, iat=int(time.time()) - 1_200),
    "other-issuer": lambda: token(USER, iss="https://evil.test"),
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_librdkafka_is_refused_with_a_token_that_does_not_hold(
    node: LastingNode, issuer: Issuer, flaw: str
) -> None:
    issuer.flaws[flaw] = FLAWS[flaw]
    assert "_AUTHENTICATION" in {
        error.name() for error in failures(login(node, issuer, "OAUTHBEARER", flaw))
    }


def test_librdkafka_does_not_talk_to_a_node_of_another_authority(
    node: LastingNode, issuer: Issuer
) -> None:
    other = node.certificates.folder / "other-ca.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    conf = login(node, issuer, "PLAIN") | {"ssl.ca.location": str(other)}
    assert "_SSL" in {error.name() for error in failures(conf)}


def test_librdkafka_with_a_certificate_of_another_authority_is_told_so(
    node: LastingNode, issuer: Issuer
) -> None:
    issued = trustme.CA().issue_cert("client.test", common_name=USER)
    conf = login(node, issuer, "mTLS") | {
        "ssl.certificate.pem": issued.cert_chain_pems[0].bytes().decode(),
        "ssl.key.pem": issued.private_key_pem.bytes().decode(),
    }
    del conf["ssl.certificate.location"], conf["ssl.key.location"]
    said = " ".join(str(error) for error in failures(conf))
    assert "unknown ca" in said


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "OAUTHBEARER", "mTLS"])
def test_librdkafka_hears_which_right_is_missing(
    node: LastingNode, issuer: Issuer, mechanism: str
) -> None:
    conf = login(node, issuer, mechanism)
    assert produce(conf, FOREIGN, b"x").name() == "TOPIC_AUTHORIZATION_FAILED"
    assert consume(conf, FOREIGN, "rd-g").name() == "TOPIC_AUTHORIZATION_FAILED"
    assert consume(conf, f"{TOPICS}PLAIN", "foreign").name() == "GROUP_AUTHORIZATION_FAILED"
    admin = ck.AdminClient(conf)
    for future in (
        admin.create_topics([ck.NewTopic("foreign-too", 1, 1)])["foreign-too"],
        admin.delete_topics([FOREIGN])[FOREIGN],
    ):
        with pytest.raises(KafkaException) as refusal:
            future.result(10)
        assert refusal.value.args[0].name() == "TOPIC_AUTHORIZATION_FAILED"


# aiokafka and kafka-python


def settings(node: SecureNode, mechanism: str, password: str = USER_PASSWORD) -> dict[str, Any]:
    return {
        "bootstrap_servers": node.address("SASL_SSL"),
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=str(node.certificates.ca)),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": password,
    }


async def test_aiokafka_administers_and_hears_what_it_may_not(node: LastingNode) -> None:
    conf = settings(node, "SCRAM-SHA-512")
    admin = AIOKafkaAdminClient(**conf)
    await admin.start()
    try:
        assert f"{TOPICS}PLAIN" in await admin.list_topics()
    finally:
        await admin.close()
    producer = aiokafka.AIOKafkaProducer(**conf)
    await producer.start()
    try:
        with pytest.raises(aiokafka.errors.TopicAuthorizationFailedError):
            await producer.send_and_wait(FOREIGN, b"x")
    finally:
        await producer.stop()
    wrong = aiokafka.AIOKafkaProducer(**settings(node, "PLAIN", "wrong"))
    try:
        with pytest.raises(aiokafka.errors.KafkaError):
            await wrong.start()
    finally:
        await wrong.stop()


def test_kafka_python_reads_in_a_group_and_hears_what_it_may_not(node: LastingNode) -> None:
    conf = settings(node, "SCRAM-SHA-256")
    consumer = kafka.KafkaConsumer(
        f"{TOPICS}PLAIN", group_id="rd-python", auto_offset_reset="earliest", **conf
    )
    try:
        assert next(consumer).value == b"hello"
    finally:
        consumer.close()
    producer = kafka.KafkaProducer(**conf)
    try:
        with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
            producer.send(FOREIGN, b"x").get(timeout=10)
    finally:
        producer.close(timeout=5)


def test_every_login_holds_after_kill9(node: LastingNode, issuer: Issuer) -> None:
    node.kill9()
    node.start()
    for mechanism in MECHANISMS:
        conf = login(node, issuer, mechanism)
        assert produce(conf, f"{TOPICS}PLAIN", mechanism.encode()) is None
        assert produce(conf, FOREIGN, b"x").name() == "TOPIC_AUTHORIZATION_FAILED"
