"""What nodes say to each other is encrypted, and secrets are replaced while they run."""

import datetime
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from mainstem.cli.development.certificates import Order, Pair, issue, make_authority
from mainstem.testing.local_cluster import LocalCluster, MemberNode

OLD, NEW = "the secret of a cluster under test\n", "another secret of the cluster\n"
RELOAD = ("--set", "tls.reload_interval_ms=100")


class OwnSecrets(LocalCluster):
    """Every node reads a file of its own."""

    def member(self, number: int, join: Sequence[str]) -> MemberNode:
        made = super().member(number, join)
        made.secret = self.folder / f"secret-{number}"
        made.secret.write_text(OLD)
        return made


@pytest.fixture
def pairs(tmp_path: Path) -> dict[str, Pair]:
    """An authority, a node's certificate, and that of a stranger's authority."""
    now = datetime.datetime.now(datetime.UTC)
    found = {name: Pair.named(tmp_path, name) for name in ("ca", "node", "other", "stranger")}
    for authority, name in (("ca", "node"), ("other", "stranger")):
        make_authority(found[authority], 30, now)
        issue(found[authority], Order(name, ["127.0.0.1", "localhost"], 30), found[name], now)
    return found


@pytest.fixture
def secure(pairs: dict[str, Pair]) -> Iterator[LocalCluster]:
    """Three nodes that speak TLS with each other, and with clients as ever."""
    settings = {
        "cluster.tls": "true",
        "cluster.tls_ca_file": pairs["ca"].certificate,
        "tls.certificate_file": pairs["node"].certificate,
        "tls.key_file": pairs["node"].key,
    }
    flags = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    with LocalCluster(arguments=(*flags, *RELOAD)) as cluster:
        yield cluster


def create(cluster: LocalCluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(20)


def write(cluster: LocalCluster, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    failures: list[object] = []
    for number in range(count):
        producer.produce(
            topic,
            b"%d" % number,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(60) == 0, cluster.logs()
    assert not failures


def read(cluster: LocalCluster, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes | None] = []
    give_up = time.monotonic() + 30
    while len(found) < count and time.monotonic() < give_up:
        found += [message.value() for message in consumer.consume(count, 0.5)]
    consumer.close()
    return found


def shakes_hands(address: str, context: ssl.SSLContext) -> bool:
    """Whether a node takes a client with these certificates."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 10) as plain:
        try:
            with context.wrap_socket(plain, server_hostname=host) as wrapped:
                # In TLS 1.3 a refused certificate is told after the client's handshake.
                wrapped.settimeout(1.0)
                return wrapped.recv(1) != b""
        except TimeoutError:
            return True
        except ssl.SSLError:
            return False


def test_nodes_that_speak_tls_replicate_and_let_no_stranger_in(
    secure: LocalCluster, pairs: dict[str, Pair]
) -> None:
    create(secure, "sealed")
    write(secure, "sealed", 200)
    assert read(secure, "sealed", 200) == [b"%d" % number for number in range(200)]
    peers = secure.nodes[2].peers
    context = ssl.create_default_context(cafile=str(pairs["ca"].certificate))
    assert not shakes_hands(peers, context), "without a certificate"
    context.load_cert_chain(*map(str, pairs["stranger"]))
    assert not shakes_hands(peers, context), "with that of another authority"
    context.load_cert_chain(*map(str, pairs["node"]))
    assert shakes_hands(peers, context)
    secure.nodes[3].kill9()
    secure.nodes[3].start()
    write(secure, "sealed", 100)
    assert len(read(secure, "sealed", 300)) == 300


def test_a_secret_is_replaced_node_by_node_while_all_of_them_run() -> None:
    with OwnSecrets(arguments=RELOAD) as cluster:
        create(cluster, "kept")
        third = cluster.nodes[3]
        third.secret.write_text(NEW + OLD)
        third.kill9()
        third.start()  # the others know the old one only
        write(cluster, "kept", 50)
        for number in (1, 2):
            cluster.nodes[number].secret.write_text(OLD + NEW)
        time.sleep(0.5)
        third.secret.write_text(NEW)
        third.kill9()
        third.start()  # it has forgotten the old one
        for number in (1, 2):
            cluster.nodes[number].secret.write_text(NEW)
        time.sleep(0.5)
        second = cluster.nodes[2]
        second.kill9()
        second.start()
        write(cluster, "kept", 50)
        assert len(read(cluster, "kept", 100)) == 100
        second.secret.write_text(OLD)
        second.kill9()
        with pytest.raises(Exception, match=r"secret|ended|READY|exit"):
            second.start(timeout_s=4)
