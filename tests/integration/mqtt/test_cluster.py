"""MQTT on three nodes: any of them serves any client, and another one when the owner is killed.

The tests share one cluster and stand in the order in which they use it up; the last one kills.
"""

import contextlib
import ssl
import time
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.integration.mqtt.paho_client import PahoClient
from tests.integration.security.kit import Certificates

from mainstem.testing.local_cluster import LocalCluster, MemberNode

PATIENCE_S = 60.0
KEPT = {"clean": False, "connect_properties": {"SessionExpiryInterval": 86_400}}
QUIET = {"enable.metrics.push": False}


class Cluster(LocalCluster):
    """Three nodes with MQTT in the clear and over TLS, and AMQP over TLS."""

    def __init__(self, certificates: Certificates) -> None:
        self.certificates = certificates
        settings = {
            "mqtt.enabled": "true",
            "mqtt.port": 0,
            "mqtt.tls_port": 0,
            "mqtt.routes": '["spread/=spread"]',
            "amqp.enabled": "true",
            "amqp.tls": "true",
            "tls.certificate_file": certificates.certificate,
            "tls.key_file": certificates.key,
        }
        flags = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        super().__init__(arguments=flags)

    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.certificates.ca))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(Certificates(tmp_path_factory.mktemp("tls"))) as own:
        own.wait_for_three_voters()
        admin = AdminClient({"bootstrap.servers": own.bootstrap, **QUIET})
        # One partition on each node and nowhere else: what MQTT cannot read on its own disk.
        alone = NewTopic("spread", num_partitions=3, replica_assignment=[[1], [2], [3]])
        admin.create_topics([alone])["spread"].result(30)
        yield own


@pytest.fixture
def dial() -> Iterator[Any]:
    clients: list[PahoClient] = []

    def connect(node: MemberNode, client_id: str = "", **options: Any) -> PahoClient:
        client = PahoClient(str(node.announced["mqtt"]), client_id, **options)
        clients.append(client)
        return client.connect()

    yield connect
    for client in clients:
        client.close()


def test_clients_of_all_nodes_hear_each_other(cluster: Cluster, dial: Any) -> None:
    clients = [dial(node) for node in cluster.nodes.values()]
    for client in clients:
        client.subscribe("talk/#", 2)

    for number, client in enumerate(clients):
        client.publish(f"talk/{number}", b"%d" % number, qos=number, retain=True)
    heard = [sorted(client.payloads(3)) for client in clients]
    late = dial(cluster.nodes[3])
    late.subscribe("talk/+")

    assert heard == [[b"0", b"1", b"2"]] * 3
    assert sorted(late.payloads(3)) == [b"0", b"1", b"2"]


def test_a_websocket_to_any_node_talks_to_clients_of_all(cluster: Cluster, dial: Any) -> None:
    # On a slow machine the sessions may get another owner meanwhile: those that are kept go on.
    listener = dial(cluster.nodes[2], "web-listener", **KEPT)
    listener.client.reconnect_delay_set(0.1, 0.5)
    listener.subscribe("web/+")
    large = bytes(range(256)) * 4_000

    for number, node in cluster.nodes.items():
        web = _websocket(node, f"web-{number}")
        try:
            web.subscribe("answers", 1)
            web.publish(f"web/{number}", large, 1)
            assert _next_of(listener, f"web/{number}") == large
            listener.publish("answers", large, 1)
            assert web.payloads(1) == [large]
            web.disconnect(SessionExpiryInterval=0)
        finally:
            web.close()
    listener.disconnect(SessionExpiryInterval=0)


def test_streams_of_several_nodes_are_written_and_read_in_order(
    cluster: Cluster, dial: Any
) -> None:
    reader, writer = dial(cluster.nodes[1]), dial(cluster.nodes[2])
    reader.subscribe("spread/#", 1)
    topics = [f"spread/{number}" for number in range(12)]

    for turn in range(3):
        for topic in topics:
            writer.publish(topic, b"%d" % turn)
    got = reader.take(36)
    stored = _partitions_with_messages(cluster)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **QUIET})
    for partition in range(3):
        producer.produce("spread", key=f"spread/kafka/{partition}", value=b"k", partition=partition)
    producer.flush(30)

    for topic in topics:
        assert [each.payload for each in got if each.topic == topic] == [b"0", b"1", b"2"]
    assert stored == {0, 1, 2}
    assert {each.topic for each in reader.take(3)} == {f"spread/kafka/{n}" for n in range(3)}


def test_a_kept_session_gets_what_others_nodes_streams_hold(cluster: Cluster, dial: Any) -> None:
    keeper = dial(cluster.nodes[2], "far-keeper", **KEPT)
    keeper.subscribe("spread/kept/#", 1)
    keeper.disconnect()
    writer = dial(cluster.nodes[3])
    for number in range(30):
        writer.publish(f"spread/kept/{number % 6}", b"%d" % number)

    again = dial(cluster.nodes[1], "far-keeper", **KEPT)

    assert again.session_present
    assert sorted(int(each.payload) for each in again.take(30)) == list(range(30))
    again.disconnect(SessionExpiryInterval=0)


def test_a_session_is_taken_over_from_another_node(cluster: Cluster, dial: Any) -> None:
    first = dial(cluster.nodes[1], "wanderer", reconnect_on_failure=False, **KEPT)
    first.subscribe("wander/#")

    second = dial(cluster.nodes[2], "wanderer", reconnect_on_failure=False, **KEPT)
    second.publish("wander/here", b"x")

    assert first.event("disconnect").value == 0x8E
    assert second.session_present
    assert second.payloads() == [b"x"]


def test_members_of_a_shared_subscription_may_be_anywhere(cluster: Cluster, dial: Any) -> None:
    members = [dial(node) for node in cluster.nodes.values()]
    for member in members:
        member.subscribe("$share/crew/chores/#")

    for number in range(30):
        members[0].publish("chores/x", b"%d" % number)
    shares = [member.payloads(10) for member in members]

    assert sorted(int(each) for share in shares for each in share) == list(range(30))


def test_clients_come_to_any_node_over_tls(cluster: Cluster) -> None:
    heard = []
    for node in cluster.nodes.values():
        client = PahoClient(str(node.announced["mqtt_tls"]))
        client.client.tls_set_context(cluster.tls())
        client.connect()
        client.subscribe("secret/#")
        client.publish(f"secret/{node.number}", b"%d" % node.number)
        heard += client.payloads()
        client.disconnect()
        with contextlib.closing(_amqp(cluster, node)) as connection:
            channel = connection.channel()
            channel.queue_declare("secrets", durable=True)
            channel.basic_publish("", "secrets", b"%d" % node.number)
            _, _, body = channel.basic_get("secrets", auto_ack=True)
            assert body == b"%d" % node.number

    assert heard == [b"1", b"2", b"3"]


def test_when_the_owner_is_killed_sessions_go_on_elsewhere_and_nothing_is_lost(
    cluster: Cluster, dial: Any
) -> None:
    owner = _owner(cluster)
    others = [node for node in cluster.nodes.values() if node is not owner]
    keeper = dial(others[0], "keeper", **KEPT)
    keeper.subscribe("jobs/#", 2)
    keeper.publish("state/x", b"kept", retain=True)
    away = dial(others[0], "away", **KEPT)
    away.subscribe("jobs/#", 1)
    away.disconnect()
    mourned = dial(
        others[1],
        "mourned",
        reconnect_on_failure=False,
        will={"topic": "jobs/will", "payload": b"will", "qos": 1},
        **KEPT,
    )
    writer = dial(others[1], "writer", **KEPT)
    # paho sends on its own what was not acknowledged, on whichever connection there is.
    writer.client.reconnect_delay_set(0.1, 0.5)
    keeper.client.reconnect_delay_set(0.1, 0.5)
    stored: set[int] = set()
    writer.client.on_publish = lambda _c, _u, mid, reason, _told: (
        stored.add(mid) if not reason.is_failure else None
    )
    sent = []
    for number in range(400):
        sent.append(writer.client.publish("jobs/1", b"%d" % number, 1 + number % 2).mid)
        if number == 150:
            owner.kill9()
        time.sleep(0.003)
    deadline = time.monotonic() + PATIENCE_S
    while not stored.issuperset(sent):
        assert time.monotonic() < deadline, (len(stored), cluster.logs())
        time.sleep(0.05)

    assert mourned.event("disconnect")
    got = _until_all(keeper, 400)
    payloads = [each.payload for each in got if each.topic == "jobs/1"]
    assert [int(each) for each in dict.fromkeys(payloads)][:1] == [0]
    assert {int(each) for each in payloads} == set(range(400))
    again = dial(others[1], "away", **KEPT)
    assert again.session_present
    waited = _until_all(again, 400)
    assert {int(each.payload) for each in waited if each.topic == "jobs/1"} == set(range(400))
    assert b"will" in {each.payload for each in waited} or b"will" in again.payloads()
    again.subscribe("state/x")
    assert again.payloads() == [b"kept"]


def _websocket(node: MemberNode, client_id: str) -> PahoClient:
    """A client over WebSocket; while no owner is known, nodes send it elsewhere."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        client = PahoClient(str(node.announced["http"]), client_id, transport="websockets", **KEPT)
        paho: Any = client.client  # its annotations know no parts of seconds
        paho.ws_set_options(path="/mqtt")
        paho.reconnect_delay_set(0.1, 0.5)
        try:
            return client.connect()
        except AssertionError:
            client.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _next_of(client: PahoClient, topic: str) -> bytes:
    """The next message of a topic; those of others may come twice when the owner changes."""
    while True:
        [got] = client.take()
        if got.topic == topic:
            return got.payload


def _until_all(client: PahoClient, count: int) -> list[Any]:
    """All that arrives until so many different jobs have."""
    deadline = time.monotonic() + PATIENCE_S
    got: list[Any] = []
    while len({each.payload for each in got if each.topic == "jobs/1"}) < count:
        assert time.monotonic() < deadline, len(got)
        got += client.take()
    return got


def _owner(cluster: Cluster) -> MemberNode:
    """The node that writes the sessions, as the catalogue has it."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    [topic] = admin.list_topics("__mqtt_sessions", timeout=30).topics.values()
    return cluster.nodes[topic.partitions[0].leader]


def _partitions_with_messages(cluster: Cluster) -> set[int]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "look", **QUIET})
    try:
        ends = {
            number: consumer.get_watermark_offsets(TopicPartition("spread", number), timeout=30)[1]
            for number in range(3)
        }
    finally:
        consumer.close()
    return {number for number, end in ends.items() if end > 0}


def _amqp(cluster: Cluster, node: MemberNode) -> pika.BlockingConnection:
    host, _, port = str(node.announced["amqp"]).rpartition(":")
    options = pika.SSLOptions(cluster.tls(), "127.0.0.1")
    return pika.BlockingConnection(
        pika.ConnectionParameters(host, int(port), heartbeat=0, ssl_options=options)
    )
