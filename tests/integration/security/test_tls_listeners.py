"""TLS listeners under attack: nothing that a plain one bounds is unbounded behind TLS."""

import contextlib
import ssl
import struct
import time
from collections.abc import Iterator

import psutil
import pytest
import trustme
from tests.integration.security import requests
from tests.integration.security.kit import Client, SecureNode, codes
from tests.integration.security.test_attacks_on_logins import audit

from mainstem.model.limits import MIB
from mainstem.model.records.record import Record, build_batch
from mainstem.wire.kafka.messages.api_versions import ApiVersionsRequest
from mainstem.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from mainstem.wire.kafka.messages.metadata import MetadataRequest
from mainstem.wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

TOPIC, VALUE_BYTES, BATCHES = "behind-tls", 900_000, 6


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    with SecureNode(tmp_path_factory.mktemp("tls")) as made:
        with made.client() as admin:
            admin.ask(*requests.create_topic(TOPIC))
            for number in range(BATCHES):
                value = bytes([number]) * VALUE_BYTES
                batch = bytes(build_batch([Record(0, 0, b"k", value, ())]))
                data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(0, batch)])
                assert codes(admin.ask(ProduceRequest(None, -1, 5_000, [data]), 9)) == {0}
        yield made


class TlsClient(Client):
    """A connection to the listener that speaks TLS; a certificate is shown where one is named."""

    def __init__(self, node: SecureNode, name: str | None = None) -> None:
        super().__init__(node.address("SSL"))
        context = ssl.create_default_context(cafile=str(node.certificates.ca))
        if name is not None:
            context.load_cert_chain(*node.certificates.issue(name))
        self.socket = context.wrap_socket(self.socket, server_hostname="127.0.0.1")


FETCH = FetchRequest(
    max_wait_ms=0,
    min_bytes=1,
    max_bytes=50 * MIB,
    topics=[FetchTopic(topic=TOPIC, partitions=[FetchPartition(partition_max_bytes=50 * MIB)])],
)


def memory_bytes(node: SecureNode) -> int:
    return int(psutil.Process(node.pid).memory_info().rss)


def test_a_peer_that_takes_no_answers_is_not_served_without_end(node: SecureNode) -> None:
    with TlsClient(node) as client:
        client.ask(ApiVersionsRequest(), 3)
        before, peak = memory_bytes(node), 0
        for _ in range(100):  # more than half a gigabyte, if it were all answered at once
            client.send(FETCH, 11)
        until = time.monotonic() + 1
        while time.monotonic() < until:
            peak = max(peak, memory_bytes(node))
            time.sleep(0.01)
    assert peak - before < 100 * MIB


def test_answers_that_had_to_wait_arrive_whole_and_in_order(node: SecureNode) -> None:
    rounds = 5  # more than an outbox holds
    with TlsClient(node) as client:
        for _ in range(rounds):
            client.send(FETCH, 11)
            client.send(MetadataRequest(topics=[]), 9)
        time.sleep(0.5)
        for number in range(rounds):
            answer = client.receive()
            assert struct.unpack_from(">i", answer) == (2 * number + 1,)
            assert len(answer) > BATCHES * VALUE_BYTES
            for value in range(BATCHES):
                assert bytes([value]) * VALUE_BYTES in answer
            assert struct.unpack_from(">i", client.receive()) == (2 * number + 2,)


@pytest.mark.parametrize(
    "data", [b"\0\0\0\x10" + bytes(100), b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff"]
)
def test_what_is_not_tls_is_closed_at_once(node: SecureNode, data: bytes) -> None:
    with Client(node.address("SSL")) as client:
        client.socket.settimeout(5)
        client.socket.sendall(data)
        with contextlib.suppress(ConnectionResetError):
            while client.socket.recv(1_000):
                pass
    with TlsClient(node) as honest:
        assert honest.ask(ApiVersionsRequest(), 3).error_code == 0


def test_old_protocols_and_strange_authorities_are_refused_with_an_alert(node: SecureNode) -> None:
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("DEFAULT:@SECLEVEL=0")
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1 is deprecated"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        Client(node.address("SSL")) as client,
        pytest.raises(ssl.SSLError, match=r"ALERT|PROTOCOL"),
    ):
        old.wrap_socket(client.socket)
    strange = ssl.create_default_context(cafile=str(node.certificates.ca))
    issued = trustme.CA().issue_cert("client.test", common_name="admin")
    issued.configure_cert(strange)

    def request() -> None:
        with (
            Client(node.address("SSL")) as plain,
            strange.wrap_socket(plain.socket, server_hostname="127.0.0.1") as secure,
        ):
            secure.recv(1)

    with pytest.raises(ssl.SSLError, match="ALERT_UNKNOWN_CA"):
        request()


def test_handshakes_that_fail_close_nobody_elses_connection(node: SecureNode) -> None:
    for _ in range(5):
        failing = [Client(node.address("SSL")) for _ in range(30)]
        for at, each in enumerate(failing):
            if at % 2:
                each.socket.sendall(b"nonsense" * 10)
            each.socket.close()
        honest = [TlsClient(node) for _ in range(5)]
        plain = [node.client() for _ in range(5)]
        for client in (*honest, *plain):
            with client:
                for _ in range(3):
                    assert client.ask(ApiVersionsRequest(), 3).error_code == 0
    files = psutil.Process(node.pid).num_fds()
    time.sleep(0.3)
    assert psutil.Process(node.pid).num_fds() <= files + 5


def test_a_login_by_certificate_is_written_down(node: SecureNode) -> None:
    with TlsClient(node, "by-certificate") as client:
        client.ask(ApiVersionsRequest(), 3)
    [line] = [each for each in audit(node) if each["user"] == "User:by-certificate"]
    assert (line["event"], line["outcome"], line["method"]) == ("login", "granted", "TLS")
