"""Real clients log in with every mechanism, over TLS and without, and by certificate."""

import asyncio
import json
import socket
import ssl
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import pytest
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey
from tests.integration.security import requests
from tests.integration.security.kit import SecureNode, rule
from tests.integration.security.web import audit

from mainstem.client.cluster import Cluster
from mainstem.client.connection import ConnectionSettings
from mainstem.client.consumer import Consumer
from mainstem.client.producer import Producer
from mainstem.client.sasl import SaslSettings
from mainstem.client.values import TopicPartition
from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.security.authorisation.acl import Operation, ResourceType

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas the old way
    import kafka
    import kafka.errors
    from kafka.net.compat import KafkaNetClient

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
KINDS = ["SASL_PLAINTEXT", "SASL_SSL"]
USER, PASSWORD, TOPIC = "client", "battery staple", "clients"
MISTAKEN = "mistaken"  # whose password is always wrong: he may get locked out
ISSUER, AUDIENCE = "https://issuer.test", "mainstem"
KEY = RSAKey.generate_key(2048, {"kid": "one"})


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    """A node that knows a user and an issuer of tokens."""
    folder = tmp_path_factory.mktemp("clients")
    keys = folder / "keys.json"
    keys.write_text(json.dumps(KeySet([KEY]).as_dict(private=False)))
    settings = {
        "security.oauth_issuer": ISSUER,
        "security.oauth_audiences": AUDIENCE,
        "security.oauth_keys": keys,
    }
    flags = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    with SecureNode(folder, *flags) as made:
        for name in (USER, MISTAKEN, "by-certificate"):
            made.make_user(name)
            with made.client() as admin:
                admin.allow(
                    rule(name, Operation.ALL, (ResourceType.TOPIC, TOPIC)),
                    rule(name, Operation.ALL, (ResourceType.GROUP, "*")),
                )
        yield made


def token(**claims: object) -> str:
    now = int(time.time())
    said = {"iss": ISSUER, "aud": AUDIENCE, "sub": USER, "exp": now + 600, **claims}
    return jwt.encode({"alg": "RS256", "kid": "one"}, said, KEY)


def librdkafka(node: SecureNode, kind: str, **rest: object) -> dict[str, Any]:
    return {
        "bootstrap.servers": node.address(kind),
        "security.protocol": kind,
        "ssl.ca.location": str(node.certificates.ca),
        "log_level": 0,
        **{name.replace("_", "."): value for name, value in rest.items()},
    }


def produce_and_consume(conf: dict[str, Any], value: bytes) -> None:
    failed: list[object] = []
    producer = confluent_kafka.Producer(conf | {"message.timeout.ms": 15_000})
    producer.produce(TOPIC, value, callback=lambda error, _: failed.append(error))
    assert producer.flush(20) == 0
    assert failed == [None]
    consumer = confluent_kafka.Consumer(
        conf | {"group.id": f"g-{value!r}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([TOPIC])
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None and message.error() is None and message.value() == value:
                return
        raise AssertionError("the record did not come back")
    finally:
        consumer.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_logs_in(node: SecureNode, kind: str, mechanism: str) -> None:
    conf = librdkafka(
        node, kind, sasl_mechanism=mechanism, sasl_username=USER, sasl_password=PASSWORD
    )
    produce_and_consume(conf, f"{kind} {mechanism}".encode())


@pytest.mark.parametrize("kind", KINDS)
def test_librdkafka_logs_in_with_a_bearer_token(node: SecureNode, kind: str) -> None:
    conf = librdkafka(node, kind, sasl_mechanism="OAUTHBEARER")
    conf["oauth_cb"] = lambda _: (token(), time.time() + 600)
    produce_and_consume(conf, f"{kind} OAUTHBEARER".encode())


def refused(conf: dict[str, Any]) -> None:
    errors: list[Any] = []
    admin = AdminClient(conf | {"error_cb": errors.append})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=1)
    admin.poll(0.1)
    assert any(error.name() == "_AUTHENTICATION" for error in errors), errors


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_is_refused_with_a_wrong_password(node: SecureNode, mechanism: str) -> None:
    refused(
        librdkafka(
            node,
            "SASL_SSL",
            sasl_mechanism=mechanism,
            sasl_username=MISTAKEN,
            sasl_password="wrong",
        )
    )


def unsigned() -> str:
    _, body, _ = token().split(".")
    return f"eyJhbGciOiJub25lIn0.{body}."


BAD_TOKENS: dict[str, Callable[[], str]] = {
    "alg=none": unsigned,
    "unknown key": lambda: jwt.encode(
        {"alg": "RS256", "kid": "two"},
        {"iss": ISSUER, "aud": AUDIENCE, "sub": USER, "exp": int(time.time()) + 600},
        RSAKey.generate_key(2048, {"kid": "two"}),
    ),
    "wrong audience": lambda: token(aud="somebody-else"),
    "wrong issuer": lambda: token(iss="https://evil.test"),
    "expired": lambda: token(exp=int(time.time()) - 600),
    "not yet valid": lambda: token(nbf=int(time.time()) + 600),
    "no user": lambda: token(sub=""),
}


@pytest.mark.parametrize("flaw", BAD_TOKENS)
def test_librdkafka_is_refused_with_a_bad_token(node: SecureNode, flaw: str) -> None:
    conf = librdkafka(node, "SASL_SSL", sasl_mechanism="OAUTHBEARER")
    conf["oauth_cb"] = lambda _: (BAD_TOKENS[flaw](), time.time() + 600)
    refused(conf)


def test_librdkafka_is_known_by_its_certificate(node: SecureNode) -> None:
    certificate, key = node.certificates.issue("by-certificate")
    conf = librdkafka(node, "SSL")
    conf |= {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)}
    produce_and_consume(conf, b"by certificate")
    logins = [line for line in audit(node) if line.get("user") == "User:by-certificate"]
    assert {(line["event"], line["outcome"], line["method"]) for line in logins} == {
        ("login", "granted", "TLS")
    }


def test_who_is_known_by_a_certificate_has_the_rights_of_that_name_only(node: SecureNode) -> None:
    certificate, key = node.certificates.issue("unknown")
    conf = librdkafka(node, "SSL", message_timeout_ms=8_000)
    conf |= {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)}
    failed: list[Any] = []
    producer = confluent_kafka.Producer(conf)
    producer.produce(TOPIC, b"x", callback=lambda error, _: failed.append(error))
    producer.flush(15)
    assert [error.name() for error in failed] == ["TOPIC_AUTHORIZATION_FAILED"]


def test_a_renewed_certificate_is_served_without_a_restart(node: SecureNode) -> None:
    def common_name() -> str:
        host, port = node.address("SSL").split(":")
        context = ssl.create_default_context(cafile=str(node.certificates.ca))
        with (
            socket.create_connection((host, int(port)), 10) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
        ):
            subject: Any = (secure.getpeercert() or {}).get("subject", ())
            return str(dict(pair for part in subject for pair in part)["commonName"])

    assert common_name() == "node"
    issued = node.certificates.authority.issue_cert("127.0.0.1", common_name="renewed")
    node.certificates.key.write_bytes(issued.private_key_pem.bytes())
    node.certificates.certificate.write_bytes(issued.cert_chain_pems[0].bytes())
    deadline = time.monotonic() + 10
    while common_name() != "renewed":
        assert time.monotonic() < deadline
        time.sleep(0.1)


# aiokafka


def tls(node: SecureNode) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(node.certificates.ca))


async def aio_round_trip(settings: dict[str, Any], value: bytes) -> None:
    async with aiokafka.AIOKafkaProducer(**settings) as producer:
        sent = await producer.send_and_wait(TOPIC, value)
    async with aiokafka.AIOKafkaConsumer(**settings) as consumer:
        partition = aiokafka.TopicPartition(TOPIC, 0)
        consumer.assign([partition])
        consumer.seek(partition, sent.offset)
        async with asyncio.timeout(20):
            assert (await consumer.getone()).value == value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_aiokafka_logs_in(node: SecureNode, kind: str, mechanism: str) -> None:
    settings = {
        "bootstrap_servers": node.address(kind),
        "security_protocol": kind,
        "ssl_context": tls(node) if kind.endswith("SSL") else None,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }
    await aio_round_trip(settings, f"aio {kind} {mechanism}".encode())


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    async def token(self) -> str:
        return token()


async def test_aiokafka_logs_in_with_a_bearer_token(node: SecureNode) -> None:
    settings = {
        "bootstrap_servers": node.address("SASL_SSL"),
        "security_protocol": "SASL_SSL",
        "ssl_context": tls(node),
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": Tokens(),
    }
    await aio_round_trip(settings, b"aio OAUTHBEARER")


# kafka-python


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_logs_in(node: SecureNode, kind: str, mechanism: str) -> None:
    settings = {
        "bootstrap_servers": node.address(kind),
        "security_protocol": kind,
        "ssl_cafile": str(node.certificates.ca),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }
    producer = kafka.KafkaProducer(**settings)
    try:
        sent = producer.send(TOPIC, f"kp {kind} {mechanism}".encode()).get(timeout=20)
        assert sent.offset >= 0
    finally:
        producer.close(timeout=5)


def test_kafka_python_is_refused_with_a_wrong_password(node: SecureNode) -> None:
    made: list[Any] = []

    def client(**settings: Any) -> Any:
        made.append(KafkaNetClient(**settings))
        return made[0]

    with pytest.raises(kafka.errors.KafkaError):
        kafka.KafkaProducer(
            bootstrap_servers=node.address("SASL_PLAINTEXT"),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username=MISTAKEN,
            sasl_plain_password="wrong",
            bootstrap_timeout_ms=1_000,
            kafka_client=client,
        )
    made[0].close()  # it leaves that to somebody else when it cannot be made


# Mainstem's own


def connected(node: SecureNode, kind: str, **rest: Any) -> Cluster:
    context = tls(node) if kind.endswith("SSL") else None
    return Cluster(node.address(kind), ConnectionSettings(**{"tls": context} | rest))


def own_sasl(mechanism: str) -> SaslSettings:
    if mechanism == "OAUTHBEARER":
        return SaslSettings(mechanism=mechanism, token=token())
    return SaslSettings(mechanism=mechanism, username=USER, password=PASSWORD)


async def own_round_trip(cluster: Cluster, value: bytes) -> None:
    async with cluster:
        async with Producer(cluster) as producer:
            place = await producer.send_and_wait(TOPIC, value, partition=0)
        async with Consumer(cluster) as consumer:
            consumer.assign([TopicPartition(TOPIC, 0)])
            consumer.seek(TopicPartition(TOPIC, 0), place.offset)
            async with asyncio.timeout(20):
                async for record in consumer:
                    assert record.value == value
                    break


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mechanism", [*MECHANISMS, "OAUTHBEARER"])
async def test_mainstems_own_client_logs_in(node: SecureNode, kind: str, mechanism: str) -> None:
    cluster = connected(node, kind, sasl=own_sasl(mechanism))
    await own_round_trip(cluster, f"own {kind} {mechanism}".encode())


async def test_mainstems_own_client_is_known_by_its_certificate(node: SecureNode) -> None:
    context = tls(node)
    context.load_cert_chain(*node.certificates.issue("by-certificate"))
    await own_round_trip(connected(node, "SSL", tls=context), b"own certificate")


async def own_failure(node: SecureNode, kind: str, **rest: Any) -> MainstemError:
    async def attempt() -> None:
        async with connected(node, kind, **rest) as cluster:
            await cluster.refresh()

    with pytest.raises(MainstemError) as caught:
        await attempt()
    return caught.value


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_mainstems_own_client_says_at_once_that_the_login_failed(
    node: SecureNode, mechanism: str
) -> None:
    sasl = SaslSettings(mechanism=mechanism, username=MISTAKEN, password="wrong")
    error = await own_failure(node, "SASL_SSL", sasl=sasl)
    assert error.code is ErrorCode.AUTHENTICATION_FAILED
    assert "wrong" not in str(error)


async def test_mainstems_own_client_does_not_trust_just_any_certificate(node: SecureNode) -> None:
    sasl = own_sasl("PLAIN")
    error = await own_failure(node, "SASL_SSL", sasl=sasl, tls=ssl.create_default_context())
    assert error.code is ErrorCode.AUTHENTICATION_FAILED
    assert "certificate is not trusted" in error.cause
    assert not error.retriable


async def test_mainstems_own_client_says_when_a_listener_speaks_no_tls(node: SecureNode) -> None:
    error = await own_failure(node, "PLAINTEXT", tls=tls(node))
    assert error.code in (ErrorCode.AUTHENTICATION_FAILED, ErrorCode.WRITER_UNAVAILABLE)


async def test_mainstems_own_client_repeats_a_login_whose_time_is_short(tmp_path: Path) -> None:
    with SecureNode(tmp_path, "--set", "security.reauthenticate_ms=1000") as made:
        made.make_user(USER, rule(USER, Operation.ALL, (ResourceType.TOPIC, TOPIC)))
        with made.client() as admin:
            admin.ask(*requests.create_topic(TOPIC))
        async with connected(made, "SASL_SSL", sasl=own_sasl("SCRAM-SHA-256")) as cluster:
            link, _ = await cluster.leader(TOPIC, 0)
            first = await link.connection()
            async with Producer(cluster) as producer:
                until = time.monotonic() + 2.5
                while time.monotonic() < until:
                    await producer.send_and_wait(TOPIC, b"x", partition=0)
            assert await link.connection() is first
        logins = [line for line in audit(made) if line["event"] == "login"]
        assert len(logins) >= 4  # two connections, and each of them again
        assert {line["outcome"] for line in logins} == {"granted"}
