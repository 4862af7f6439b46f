"""MQTT that asks who is there: passwords, SCRAM, certificates, and what each may do."""

import ssl
from collections.abc import Iterator
from typing import Any

import pytest
from scramp import ScramClient
from tests.integration.mqtt.paho_client import PahoClient
from tests.integration.mqtt.raw_client import RawClient
from tests.integration.security.kit import ADMIN_PASSWORD, USER_PASSWORD, SecureNode, rule

from mainstem.security.authorisation.acl import Operation, PatternType, ResourceType
from mainstem.wire.mqtt.kinds import V5
from mainstem.wire.mqtt.packets import Auth, Connack, Connect
from mainstem.wire.mqtt.reasons import Reason

SENSORS = (ResourceType.TOPIC, "mqtt/sensors/")
WITH_LOGIN = (
    "--set", "mqtt.enabled=true", "--set", "mqtt.port=0", "--set", "mqtt.tls_port=0",
    "--set", "mqtt.login=true",
)  # fmt: skip


@pytest.fixture(scope="module")
def login_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    with SecureNode(tmp_path_factory.mktemp("mqtt"), *WITH_LOGIN) as node:
        node.make_user(
            "sensor",
            rule("sensor", Operation.WRITE, SENSORS, pattern=PatternType.PREFIXED),
        )
        node.make_user(
            "watcher",
            rule("watcher", Operation.READ, SENSORS, pattern=PatternType.PREFIXED),
        )
        node.make_user("stranger")
        yield node


def client_of(node: SecureNode, user: str | None, password: str, **options: Any) -> PahoClient:
    login = None if user is None else (user, password)
    return PahoClient(
        str(node.announced["mqtt"]),
        f"of-{user}",
        login=login,
        reconnect_on_failure=False,
        **options,
    )


def coming(client: PahoClient) -> int:
    client.connect(starts=False)
    return int(client.event("connect").value)


@pytest.mark.parametrize(
    ("user", "password", "reason"),
    [
        ("admin", ADMIN_PASSWORD, 0),
        ("sensor", USER_PASSWORD, 0),
        ("sensor", "wrong", 0x86),
        ("nobody", USER_PASSWORD, 0x86),
        ("token", "no.such.token", 0x86),
        (None, "", 0x86),
    ],
)
def test_only_who_shows_who_he_is_comes_in(
    login_node: SecureNode, user: str | None, password: str, reason: int
) -> None:
    client = client_of(login_node, user, password)
    assert coming(client) == reason
    client.close()


def test_rules_say_what_may_be_published_and_seen(login_node: SecureNode) -> None:
    sensor = client_of(login_node, "sensor", USER_PASSWORD).connect()
    watcher = client_of(login_node, "watcher", USER_PASSWORD).connect()
    assert watcher.subscribe("sensors/#") == [1]
    assert watcher.subscribe("#") == [0x87]
    assert watcher.subscribe("$share/g/other") == [0x87]
    assert sensor.subscribe("sensors/#") == [0x87]

    sensor.publish("sensors/1", b"seen")
    refused = sensor.client.publish("other", b"refused", 1)

    assert watcher.payloads() == [b"seen"]
    refused.wait_for_publish(10)
    assert watcher.nothing()
    sensor.client.publish("other", b"refused", 0)
    assert sensor.event("disconnect").value == 0x87
    for client in (sensor, watcher):
        client.close()


def test_a_will_needs_the_right_to_publish_it(login_node: SecureNode) -> None:
    will = {"topic": "sensors/1", "payload": b"x", "qos": 1}
    client = client_of(login_node, "stranger", USER_PASSWORD, will=will)
    assert coming(client) == 0x87
    client.close()


def test_nobody_takes_the_session_of_somebody_else(login_node: SecureNode) -> None:
    mine = PahoClient(
        str(login_node.announced["mqtt"]), "mine", login=("sensor", USER_PASSWORD)
    ).connect()
    other = PahoClient(
        str(login_node.announced["mqtt"]), "mine", login=("watcher", USER_PASSWORD),
        reconnect_on_failure=False,
    )  # fmt: skip
    assert coming(other) == 0x87
    mine.publish("sensors/1", b"still there")
    for client in (mine, other):
        client.close()


def test_clients_come_in_over_tls_by_password_or_certificate(login_node: SecureNode) -> None:
    address = str(login_node.announced["mqtt_tls"])
    context = ssl.create_default_context(cafile=str(login_node.certificates.ca))
    by_password = PahoClient(address, "p", login=("sensor", USER_PASSWORD))
    by_password.client.tls_set_context(context)
    by_password.connect()
    by_password.publish("sensors/1", bytes(100_000))
    certificate, key = login_node.certificates.issue("watcher")
    known = ssl.create_default_context(cafile=str(login_node.certificates.ca))
    known.load_cert_chain(certificate, key)
    by_certificate = PahoClient(address, "c")
    by_certificate.client.tls_set_context(known)
    by_certificate.connect()
    assert by_certificate.subscribe("sensors/#") == [1]
    assert by_certificate.subscribe("other") == [0x87]
    for client in (by_password, by_certificate):
        client.close()


@pytest.mark.parametrize(("password", "reason"), [(USER_PASSWORD, 0), ("wrong", 0x86)])
def test_scram_steps_are_auth_packets(login_node: SecureNode, password: str, reason: int) -> None:
    method = "SCRAM-SHA-256"
    scram = ScramClient([method], "sensor", password)
    with RawClient(str(login_node.announced["mqtt"]), V5) as raw:
        told: dict[str, Any] = {
            "authentication_method": method,
            "authentication_data": scram.get_client_first().encode(),
        }
        raw.send(Connect(version=V5, client_id="scram", properties=told))
        challenge = raw.receive()
        assert isinstance(challenge, Auth)
        assert challenge.reason == Reason.CONTINUE_AUTHENTICATION
        scram.set_server_first(challenge.properties["authentication_data"].decode())
        told["authentication_data"] = scram.get_client_final().encode()
        raw.send(Auth(Reason.CONTINUE_AUTHENTICATION, told))
        answer = raw.receive()
        assert isinstance(answer, Connack)
        assert answer.reason == reason
        if not reason:
            scram.set_server_final(answer.properties["authentication_data"].decode())


def test_a_method_that_is_not_served_is_refused(login_node: SecureNode) -> None:
    with RawClient(str(login_node.announced["mqtt"]), V5) as raw:
        raw.send(Connect(version=V5, properties={"authentication_method": "GS2-KRB5"}))
        answer = raw.receive()
    assert isinstance(answer, Connack)
    assert answer.reason == Reason.BAD_AUTHENTICATION_METHOD


def test_over_websocket_the_same_login_is_asked_for(login_node: SecureNode) -> None:
    client = PahoClient(login_node.http, transport="websockets", reconnect_on_failure=False)
    client.client.ws_set_options(path="/mqtt")
    assert coming(client) == 0x86
    client.close()


def test_version_3_1_1_is_told_that_its_password_is_wrong(login_node: SecureNode) -> None:
    with RawClient(str(login_node.announced["mqtt"])) as raw:
        raw.send(Connect(client_id="old", username="sensor", password=b"wrong"))
        answer = raw.receive()
        assert raw.is_closed()
    assert isinstance(answer, Connack)
    assert answer.reason == Reason.BAD_LOGIN
