"""Attacks on the login of Kafka listeners, each by its name."""

import struct
import time
from collections.abc import Iterator

import psutil
import pytest
from tests.integration.security import requests
from tests.integration.security.kit import (
    ADMIN_PASSWORD,
    REFUSALS,
    USER_PASSWORD,
    Client,
    SecureNode,
    codes,
    rule,
)

from mainstem.security.authorisation.acl import Operation, ResourceType
from mainstem.wire.kafka.messages.api_versions import ApiVersionsRequest
from mainstem.wire.kafka.messages.fetch import FetchRequest, ReplicaState
from mainstem.wire.kafka.messages.list_groups import ListGroupsRequest
from mainstem.wire.kafka.messages.metadata import MetadataRequest
from mainstem.wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from mainstem.wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest
from mainstem.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest

SASL_FAILED, UNSUPPORTED_MECHANISM, ILLEGAL_STATE = 58, 33, 34


@pytest.fixture(scope="module")
def secure_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    """A node of its own: so many failures would lock others out, too."""
    with SecureNode(tmp_path_factory.mktemp("attacked")) as node:
        yield node


@pytest.fixture
def stranger(secure_node: SecureNode) -> Client:
    """A connection that has not logged in."""
    return Client(secure_node.address("SASL_PLAINTEXT"))


@pytest.mark.parametrize(
    "request_",
    [
        MetadataRequest(topics=None),
        ListGroupsRequest(),
        requests.produce()[0],
        requests.fetch()[0],
        requests.acl()[0],
        requests.scram_upserts("eve", "p"),
    ],
    ids=lambda request: type(request).__name__,
)
def test_no_credentials_nothing_but_a_login_is_served(
    stranger: Client, request_: MetadataRequest
) -> None:
    with stranger:
        assert stranger.ask(ApiVersionsRequest(), 3).error_code == 0
        stranger.send(request_, 9 if isinstance(request_, ProduceRequest) else None)
        assert stranger.is_closed()


def test_no_credentials_a_request_sent_ahead_of_the_login_is_not_served_after_a_wrong_one(
    stranger: Client,
) -> None:
    with stranger:
        stranger.ask(SaslHandshakeRequest("PLAIN"), 1)
        stranger.send(SaslAuthenticateRequest(b"\0admin\0wrong"), 2)
        stranger.send(requests.acl()[0])
        assert b"the login failed" in stranger.receive()
        assert stranger.is_closed()


@pytest.mark.parametrize(
    ("user", "password"),
    [("admin", "wrong"), ("admin", ""), ("nobody", ADMIN_PASSWORD), ("", ""), ("*", "x"),
     ("ADMIN", ADMIN_PASSWORD), ("admin", ADMIN_PASSWORD + "\n"), ("User:admin", ADMIN_PASSWORD)],
)  # fmt: skip
def test_wrong_credentials_close_the_connection(stranger: Client, user: str, password: str) -> None:
    with stranger:
        answer = stranger.try_login("PLAIN", f"\0{user}\0{password}".encode())
        assert answer.error_code == SASL_FAILED
        assert "wrong" not in (answer.error_message or "")
        assert stranger.is_closed()


def test_impersonation_an_authzid_that_is_not_the_authcid_is_refused(stranger: Client) -> None:
    with stranger:
        answer = stranger.try_login("PLAIN", f"root\0admin\0{ADMIN_PASSWORD}".encode())
        assert answer.error_code == SASL_FAILED
        assert stranger.is_closed()


def test_impersonation_a_connection_cannot_become_somebody_else(secure_node: SecureNode) -> None:
    secure_node.make_user("first")
    secure_node.make_user("second")
    with secure_node.login("first") as client:
        client.log_in("first", USER_PASSWORD)
        answer = client.try_login("PLAIN", f"\0second\0{USER_PASSWORD}".encode())
        assert answer.error_code == SASL_FAILED
        assert client.is_closed()


def test_an_unknown_mechanism_is_refused_with_those_there_are(stranger: Client) -> None:
    with stranger:
        answer = stranger.ask(SaslHandshakeRequest("GSSAPI"), 1)
        assert answer.error_code == UNSUPPORTED_MECHANISM
        assert set(answer.mechanisms) >= {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}


def test_a_login_without_a_mechanism_is_refused(stranger: Client) -> None:
    with stranger:
        assert stranger.ask(SaslAuthenticateRequest(b"x"), 2).error_code == ILLEGAL_STATE


def test_a_listener_without_login_takes_none(secure_node: SecureNode) -> None:
    with secure_node.client() as client:
        assert client.ask(SaslHandshakeRequest("PLAIN"), 1).error_code == ILLEGAL_STATE
        assert client.ask(SaslAuthenticateRequest(b"x"), 2).error_code == ILLEGAL_STATE


def memory_bytes(node: SecureNode) -> int:
    return int(psutil.Process(node.pid).memory_info().rss)


@pytest.mark.parametrize("length", [2**31 - 1, 100 * 2**20, 512 * 1024 + 1, -1, 0, 7])
def test_a_length_prefix_before_login_takes_no_memory(secure_node: SecureNode, length: int) -> None:
    before = memory_bytes(secure_node)
    with Client(secure_node.address("SASL_PLAINTEXT")) as client:
        client.socket.sendall(struct.pack(">ihh", length, 36, 2) + bytes(1_000))
        assert client.is_closed()
    assert memory_bytes(secure_node) - before < 2**20


def test_a_large_frame_before_login_is_not_collected(secure_node: SecureNode) -> None:
    with Client(secure_node.address("SASL_PLAINTEXT")) as client:
        client.ask(SaslHandshakeRequest("PLAIN"), 1)
        client.send(SaslAuthenticateRequest(b"x" * 200_000), 2)
        answer = client.receive()
        assert b"the login failed" in answer


def test_frames_sent_ahead_of_a_login_are_few(secure_node: SecureNode) -> None:
    with Client(secure_node.address("SASL_PLAINTEXT")) as client:
        client.ask(SaslHandshakeRequest("PLAIN"), 1)
        try:
            for _ in range(1_000):
                client.send(SaslAuthenticateRequest(b"\0admin\0wrong" + b"x" * 900), 2)
        except ConnectionError:
            return
        while not client.is_closed():
            continue


def test_repeated_failures_lock_the_pair_of_user_and_address(secure_node: SecureNode) -> None:
    secure_node.make_user("locked")
    for _ in range(6):
        with Client(secure_node.address("SASL_PLAINTEXT")) as client:
            assert client.try_login("PLAIN", b"\0locked\0wrong").error_code == SASL_FAILED
    with Client(secure_node.address("SASL_PLAINTEXT")) as client:
        right = client.try_login("PLAIN", f"\0locked\0{USER_PASSWORD}".encode())
        assert right.error_code == SASL_FAILED
    secure_node.make_user("not-locked")
    secure_node.login("not-locked").socket.close()
    time.sleep(2.1)
    secure_node.login("locked").socket.close()


def test_a_client_cannot_fetch_as_a_replica(secure_node: SecureNode) -> None:
    with secure_node.login("admin", ADMIN_PASSWORD) as client:
        request = FetchRequest(replica_state=ReplicaState(replica_id=1), max_bytes=1)
        assert client.ask(request, 17).error_code == 42
        request = FetchRequest(replica_id=1, max_bytes=1)
        assert client.ask(request, 12).error_code == 42


def test_a_client_cannot_write_in_a_foreign_transaction(secure_node: SecureNode) -> None:
    name, topic = "thief", "attacked"
    secure_node.make_user(name, rule(name, Operation.WRITE, (ResourceType.TOPIC, topic)))
    with secure_node.client() as admin, secure_node.login(name) as thief:
        admin.ask(*requests.create_topic(topic))
        for transactional_id in (None, "somebody-else"):
            data = [PartitionProduceData(0, requests.batch(flags=0x10))]
            request = ProduceRequest(
                transactional_id, -1, 5_000, [TopicProduceData(name=topic, partition_data=data)]
            )
            for _ in range(3):
                assert codes(thief.ask(request, 9)) & REFUSALS


def test_a_foreign_transactional_batch_does_not_slip_through_behind_plain_ones(
    secure_node: SecureNode,
) -> None:
    name, topic = "smuggler", "smuggled"
    secure_node.make_user(name, rule(name, Operation.WRITE, (ResourceType.TOPIC, topic)))
    with secure_node.client() as admin, secure_node.login(name) as client:
        admin.ask(*requests.create_topic(topic))
        for _ in range(3):
            assert codes(client.ask(*requests.produce(topic))) == {0}
        data = [PartitionProduceData(0, requests.batch(flags=0x10))]
        request = ProduceRequest(
            None, -1, 5_000, [TopicProduceData(name=topic, partition_data=data)]
        )
        assert codes(client.ask(request, 9)) == {53}


def test_a_right_that_is_taken_away_ends_writing_on_open_connections(
    secure_node: SecureNode,
) -> None:
    name, topic = "demoted", "demoted-topic"
    write = (Operation.WRITE, (ResourceType.TOPIC, topic))
    read = (Operation.READ, (ResourceType.TOPIC, topic))
    secure_node.make_user(name, rule(name, *write), rule(name, *read))
    with secure_node.client() as admin, secure_node.login(name) as client:
        admin.ask(*requests.create_topic(topic))
        for _ in range(3):
            assert codes(client.ask(*requests.produce(topic))) == {0}
            assert codes(client.ask(*requests.fetch(topic))) == {0}
        admin.allow(rule(name, *write, deny=True), rule(name, *read, deny=True))
        assert codes(client.ask(*requests.produce(topic))) == {29}
        assert 29 in codes(client.ask(*requests.fetch(topic)))
