"""Clients whose login must be repeated (KIP-368) go on without a hitch, on the same connection."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.integration.security import java_client, requests
from tests.integration.security.issuer import Issuer, token
from tests.integration.security.java_client import Java
from tests.integration.security.kit import USER_PASSWORD, SecureNode, rule
from tests.integration.security.lasting import flags

from mainstem.security.authorisation.acl import Operation, ResourceType

TOPIC = "repeated"
REPEAT_MS, FOR_S, PAUSE_S = 1_000, 3.5, 0.1


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with Issuer() as running:
        yield running


@pytest.fixture(scope="module")
def node(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    settings = issuer.settings | {"security.reauthenticate_ms": REPEAT_MS}
    with SecureNode(tmp_path_factory.mktemp("repeated"), *flags(settings)) as made:
        with made.client() as admin:
            admin.ask(*requests.create_topic(TOPIC))
            for name in ("scram", "oauth", "java"):
                admin.allow(rule(name, Operation.ALL, (ResourceType.TOPIC, TOPIC)))
        for name in ("scram", "java"):
            made.make_user(name)
        yield made


def logins(node: SecureNode, user: str) -> int:
    lines = (node.data_dir / "audit.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return sum(each["event"] == "login" and each["user"] == f"User:{user}" for each in found)


def connection(node: SecureNode, user: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": node.address("SASL_SSL"),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(node.certificates.ca),
        "log_level": 0,
        "retries": 0,
        "linger.ms": 0,
        "sasl.username": user,
        "sasl.password": USER_PASSWORD,
    }


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "OAUTHBEARER"])
def test_librdkafka_repeats_its_login(node: SecureNode, mechanism: str) -> None:
    user = "oauth" if mechanism == "OAUTHBEARER" else "scram"
    errors: list[Any] = []
    conf = connection(node, user) | {"sasl.mechanism": mechanism, "error_cb": errors.append}
    if user == "oauth":
        conf["oauth_cb"] = lambda _: (token(user), time.time() + 600)
    producer = Producer(conf)
    failed: list[Any] = []
    until = time.monotonic() + FOR_S
    while time.monotonic() < until:
        producer.produce(TOPIC, b"x", callback=lambda error, _: failed.append(error))
        producer.poll(PAUSE_S)
    assert producer.flush(10) == 0
    assert not any(failed)
    assert not errors
    assert logins(node, user) >= 4  # two connections, and the one that is used again and again


@pytest.mark.needs("java", "maven")
def test_java_repeats_its_login(node: SecureNode, tmp_path_factory: pytest.TempPathFactory) -> None:
    with Java(tmp_path_factory.mktemp("java-log") / "log") as java:
        settings = java_client.settings(node, "SASL_SSL")
        settings |= java_client.password("SCRAM-SHA-256", "java", USER_PASSWORD)
        java.client("java", settings)
        sent = java.do("steady", "java", TOPIC, int(FOR_S * 1000), int(PAUSE_S * 1000))
    assert int(sent) > 5
    assert logins(node, "java") >= 4
