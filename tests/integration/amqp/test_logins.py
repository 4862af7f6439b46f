"""Who gets in by AMQP, how, and what he may do then."""

import ssl
import time
from collections.abc import Iterator
from typing import Any

import pika
import pytest
import scramp
from kombu import connection as kombu_connection
from pika.exceptions import (
    AMQPConnectionError,
    ChannelClosedByBroker,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)
from tests.integration.amqp.conftest import drained
from tests.integration.amqp.raw import Raw
from tests.integration.security.kit import ADMIN_PASSWORD, USER_PASSWORD, SecureNode, rule

from mainstem.model.errors import InvalidRequest
from mainstem.node.config.command_line import configuration
from mainstem.security.authorisation.acl import Operation, PatternType, ResourceType
from mainstem.wire.amqp import connection_methods as connection
from mainstem.wire.amqp import frames
from mainstem.wire.kafka.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)

ASKS = ("--set", "amqp.enabled=true", "--set", "amqp.login=true")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    with SecureNode(tmp_path_factory.mktemp("amqp"), *ASKS) as made:
        made.make_user(
            "carol",
            rule(
                "carol",
                Operation.ALL,
                (ResourceType.TOPIC, "queue.carol"),
                pattern=PatternType.PREFIXED,
            ),
            rule("carol", Operation.WRITE, (ResourceType.TOPIC, "shop")),
        )
        yield made


@pytest.fixture(scope="module")
def tls_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    folder = tmp_path_factory.mktemp("amqps")
    with SecureNode(folder, *ASKS, "--set", "amqp.tls=true") as made:
        made.make_user(
            "carol",
            rule(
                "carol",
                Operation.ALL,
                (ResourceType.TOPIC, "queue.carol"),
                pattern=PatternType.PREFIXED,
            ),
        )
        yield made


def dial(node: SecureNode, user: str, password: str, **options: Any) -> Any:
    host, _, port = node.amqp.rpartition(":")
    login = pika.PlainCredentials(user, password)
    return pika.BlockingConnection(
        pika.ConnectionParameters(host, int(port), credentials=login, **options)
    )


def test_the_right_password_gets_in(node: SecureNode) -> None:
    with dial(node, "admin", ADMIN_PASSWORD) as link:
        channel = link.channel()
        channel.queue_declare("admins")
        channel.basic_publish("", "admins", b"x", pika.BasicProperties(user_id="admin"))
        assert [body for _, _, body in drained(channel, "admins", 1)] == [b"x"]


@pytest.mark.parametrize(
    ("user", "password"),
    [("admin", "wrong"), ("guest", "guest"), ("admin", ""), ("", ""), ("carol", ADMIN_PASSWORD)],
)
async def test_nobody_else_does(node: SecureNode, user: str, password: str) -> None:
    with pytest.raises(ProbableAuthenticationError) as caught:
        dial(node, user, password)
    assert "ACCESS_REFUSED" in str(caught.value)


def test_amqplain_is_a_way_to_log_in(node: SecureNode) -> None:
    connect: Any = kombu_connection.Connection
    address = f"amqp://admin:{ADMIN_PASSWORD.replace(' ', '%20')}@{node.amqp}//"
    with connect(address, login_method="AMQPLAIN") as link:
        link.connect()
        assert link.connected
    link = connect(f"amqp://admin:wrong@{node.amqp}//", login_method="AMQPLAIN")
    with pytest.raises(link.channel_errors, match="ACCESS_REFUSED"):
        link.connect()


def test_rights_are_asked_for_every_verb(node: SecureNode) -> None:
    with dial(node, "admin", ADMIN_PASSWORD) as admin:
        admin.channel().exchange_declare("shop", "fanout")
        admin.channel().queue_declare("others")
    with dial(node, "carol", USER_PASSWORD) as connection:
        channel = connection.channel()
        channel.queue_declare("carols")
        channel.confirm_delivery()
        channel.basic_publish("", "carols", b"x")
        channel.basic_publish("shop", "", b"x")
        assert [body for _, _, body in drained(channel, "carols", 1)] == [b"x"]
        forbidden: list[Any] = [
            lambda c: c.queue_declare("mine"),
            lambda c: c.exchange_declare("mine"),
            lambda c: c.exchange_delete("shop"),
            lambda c: c.queue_bind("carols", "shop"),
            lambda c: c.basic_consume("others", print),
            lambda c: c.basic_get("others"),
            lambda c: c.queue_purge("others"),
            lambda c: c.queue_delete("others"),
        ]
        for verb in forbidden:
            with pytest.raises(ChannelClosedByBroker) as caught:
                verb(connection.channel())
            assert caught.value.reply_code == 403
        channel = connection.channel()
        channel.basic_publish("", "others", b"x")
        with pytest.raises(ChannelClosedByBroker) as caught:
            channel.queue_declare("carols", passive=True)
        assert caught.value.reply_code == 403
        assert "refused for user 'carol'" in caught.value.reply_text


def trusting(node: SecureNode, name: str | None = None) -> Any:
    context = ssl.create_default_context(cafile=str(node.certificates.ca))
    if name is not None:
        certificate, key = node.certificates.issue(name)
        context.load_cert_chain(certificate, key)
    return pika.SSLOptions(context, "127.0.0.1")


def test_passwords_go_through_tls(tls_node: SecureNode) -> None:
    options = trusting(tls_node)
    with dial(tls_node, "carol", USER_PASSWORD, ssl_options=options) as connection:
        channel = connection.channel()
        channel.queue_declare("carol-1")
        channel.basic_publish("", "carol-1", b"y" * 700_000)
        assert [len(body) for _, _, body in drained(channel, "carol-1", 1)] == [700_000]
    with pytest.raises(AMQPConnectionError):
        dial(tls_node, "carol", USER_PASSWORD, socket_timeout=5)


def test_a_certificate_is_a_login(tls_node: SecureNode) -> None:
    host, _, port = tls_node.amqp.rpartition(":")
    parameters = pika.ConnectionParameters(
        host,
        int(port),
        credentials=pika.credentials.ExternalCredentials(),
        ssl_options=trusting(tls_node, "carol"),
    )
    with pika.BlockingConnection(parameters) as connection:
        connection.channel().queue_declare("carol-2")
        with pytest.raises(ChannelClosedByBroker) as caught:
            connection.channel().queue_declare("dave-2")
        assert "refused for user 'carol'" in caught.value.reply_text


def test_without_a_certificate_external_is_not_offered(tls_node: SecureNode) -> None:
    host, _, port = tls_node.amqp.rpartition(":")
    parameters = pika.ConnectionParameters(
        host,
        int(port),
        credentials=pika.credentials.ExternalCredentials(),
        ssl_options=trusting(tls_node),
    )
    with pytest.raises(AMQPConnectionError):
        pika.BlockingConnection(parameters)


def test_a_listener_that_others_reach_asks_for_a_login() -> None:
    given = ["--set", "amqp.enabled=true", "--set", "amqp.host=0.0.0.0"]
    with pytest.raises(InvalidRequest, match=r"amqp.host"):
        configuration(given, {})
    with pytest.raises(InvalidRequest, match=r"amqp.tls"):
        configuration([*given, "--set", "amqp.login=true"], {})
    assert configuration([*given, "--insecure"], {}).config.amqp.host == "0.0.0.0"


def greeted(node: SecureNode) -> Raw:
    raw = Raw(node)
    raw.send(frames.PROTOCOL_HEADER)
    start: Any = raw.on_note()
    assert b"SCRAM-SHA-256" in start.mechanisms.split()
    assert b"ANONYMOUS" not in start.mechanisms.split()
    return raw


@pytest.mark.parametrize(("password", "is_in"), [(ADMIN_PASSWORD, True), ("wrong", False)])
def test_scram_takes_several_words(node: SecureNode, password: str, *, is_in: bool) -> None:
    client = scramp.ScramClient(["SCRAM-SHA-256"], "admin", password)
    with greeted(node) as raw:
        first = client.get_client_first().encode()
        raw.say(connection.ConnectionStartOk(mechanism="SCRAM-SHA-256", response=first))
        challenge: Any = raw.on_note()
        assert isinstance(challenge, connection.ConnectionSecure)
        client.set_server_first(challenge.challenge.decode())
        raw.say(connection.ConnectionSecureOk(response=client.get_client_final().encode()))
        if is_in:
            assert isinstance(raw.on_note(), connection.ConnectionTune)
        else:
            assert raw.all() == b""


@pytest.mark.parametrize(("secret", "is_taken"), [(ADMIN_PASSWORD, True), ("wrong", False)])
def test_a_secret_is_renewed(node: SecureNode, secret: str, *, is_taken: bool) -> None:
    with greeted(node) as raw:
        raw.say(connection.ConnectionStartOk(response=f"\0admin\0{ADMIN_PASSWORD}".encode()))
        raw.on_note()
        raw.say(connection.ConnectionTuneOk(channel_max=10, frame_max=131_072))
        raw.say(connection.ConnectionOpen())
        raw.on_note()
        raw.say(connection.ConnectionUpdateSecret(new_secret=secret.encode(), reason="old"))
        answer: Any = raw.on_note()
        if is_taken:
            assert isinstance(answer, connection.ConnectionUpdateSecretOk)
        else:
            assert isinstance(answer, connection.ConnectionClose)
            assert answer.reply_code == 530


def test_nobody_becomes_somebody_else(node: SecureNode) -> None:
    with greeted(node) as raw:
        response = f"admin\0carol\0{USER_PASSWORD}".encode()
        raw.say(connection.ConnectionStartOk(response=response))
        assert raw.all() == b""


def test_a_right_that_is_taken_away_ends_publishing_on_open_channels(node: SecureNode) -> None:
    everything = (ResourceType.TOPIC, "queue.erin")
    node.make_user("erin", rule("erin", Operation.ALL, everything))
    with dial(node, "erin", USER_PASSWORD) as link:
        channel = link.channel()
        channel.queue_declare("erin")
        channel.confirm_delivery()
        channel.basic_publish("", "erin", b"1")
        with node.client() as admin:
            admin.allow(rule("erin", Operation.WRITE, everything, deny=True))
        with pytest.raises(ChannelClosedByBroker) as caught:
            channel.basic_publish("", "erin", b"2")
        assert caught.value.reply_code == 403


def test_repeated_failures_lock_a_user_out(node: SecureNode) -> None:
    node.make_user("frank")
    for _ in range(6):
        with pytest.raises(ProbableAuthenticationError):
            dial(node, "frank", "wrong")
    with pytest.raises(ProbableAuthenticationError):
        dial(node, "frank", USER_PASSWORD)


def test_whoever_publishes_more_than_his_quota_has_to_wait(node: SecureNode) -> None:
    node.make_user("grace", rule("grace", Operation.ALL, (ResourceType.TOPIC, "queue.grace")))
    with dial(node, "grace", USER_PASSWORD) as link:
        channel = link.channel()
        channel.queue_declare("grace")
        channel.confirm_delivery()
        limit = RequestEntryData(
            [RequestEntityData("user", "grace")], [OpData("producer_byte_rate", 20_000)]
        )
        with node.client() as admin:
            admin.ask(AlterClientQuotasRequest(entries=[limit]))
        began = time.monotonic()
        for _ in range(12):
            channel.basic_publish("", "grace", b"x" * 10_000)
        assert time.monotonic() - began > 2


def test_a_virtual_host_is_made_by_those_who_may(node: SecureNode) -> None:
    with pytest.raises(ProbableAccessDeniedError) as caught:
        dial(node, "carol", USER_PASSWORD, virtual_host="team")
    assert "(530)" in str(caught.value)
    with dial(node, "admin", ADMIN_PASSWORD, virtual_host="team") as link:
        link.channel().queue_declare("theirs")
    with dial(node, "carol", USER_PASSWORD, virtual_host="team") as link:
        with pytest.raises(ChannelClosedByBroker) as refused:
            link.channel().queue_declare("carols")
        assert refused.value.reply_code == 403
