"""Quotas, measured: clients are told how long to wait, they wait, and the rate holds.

Whoever does not wait is not read from, so the rate holds for him, too.
"""

import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.integration.security import java_client, requests
from tests.integration.security.java_client import Java
from tests.integration.security.kit import USER_PASSWORD, Client, SecureNode, codes, rule

from mainstem.model.records.record import Record, build_batch
from mainstem.security.authorisation.acl import Operation, ResourceType
from mainstem.wire.kafka.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from mainstem.wire.kafka.messages.list_groups import ListGroupsRequest
from mainstem.wire.kafka.messages.metadata import MetadataRequest
from mainstem.wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

TOPIC = "throttled"
RATE = 200_000.0
RECORD_BYTES, RECORDS = 10_000, 50  # 500 kB: one burst of a second, then some waiting


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    with SecureNode(tmp_path_factory.mktemp("throttled")) as made:
        with made.client() as admin:
            admin.ask(*requests.create_topic(TOPIC))
        yield made


def large_request() -> requests.Asked:
    batch = bytes(build_batch([Record(0, 0, b"k", bytes(RECORD_BYTES), ())]))
    data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(0, batch)])
    return ProduceRequest(None, -1, 5_000, [data]), 9


class CallerFrom(Client):
    """A connection from one of the addresses of this machine."""

    def __init__(self, address: str, source: str) -> None:
        super().__init__(address)
        self.socket.close()
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 20, (source, 0))


def limit(node: SecureNode, entity: dict[str, str | None], **limits: float | None) -> None:
    entry = RequestEntryData(
        entity=[RequestEntityData(kind, name) for kind, name in entity.items()],
        ops=[OpData(name, value or 0.0, value is None) for name, value in limits.items()],
    )
    with node.client() as admin:
        assert codes(admin.ask(AlterClientQuotasRequest([entry]))) == {0}


def user(node: SecureNode, name: str) -> dict[str, Any]:
    """A user who may do everything, and how librdkafka logs in as him."""
    node.make_user(
        name,
        rule(name, Operation.ALL, (ResourceType.TOPIC, "*")),
        rule(name, Operation.ALL, (ResourceType.GROUP, "*")),
    )
    return {
        "bootstrap.servers": node.address("SASL_PLAINTEXT"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": name,
        "sasl.password": USER_PASSWORD,
        "client.id": "app",
        "log_level": 0,
    }


class Statistics:
    """What librdkafka says about the throttles that it obeyed."""

    def __init__(self) -> None:
        self.longest_ms = 0.0

    def __call__(self, text: str) -> None:
        for broker in json.loads(text)["brokers"].values():
            self.longest_ms = max(self.longest_ms, broker["throttle"]["max"])


def produce(conf: dict[str, Any]) -> tuple[float, float]:
    """Send as fast as it goes, until more may be sent: seconds, and the longest throttle in ms."""
    seen = Statistics()
    producer = Producer(conf | {"stats_cb": seen, "statistics.interval.ms": 100, "linger.ms": 0})
    start = time.monotonic()
    for values in ([bytes(RECORD_BYTES)] * RECORDS, [b"one more"]):
        for value in values:
            producer.produce(TOPIC, value)
        assert producer.flush(30) == 0
    took_s = time.monotonic() - start
    producer.poll(0.2)
    return took_s, seen.longest_ms


def check_rate(sent_bytes: float, took_s: float, rate: float = RATE) -> None:
    """Not more than the rate and one burst allow; and not much less than that."""
    assert sent_bytes <= rate * (took_s + 1.0) * 1.05
    assert took_s <= (sent_bytes / rate) * 1.5 + 2.0


ENTITIES: dict[str, dict[str, str | None]] = {
    "user": {"user": "by-user"},
    "user and client": {"user": "by-user and client", "client-id": "app"},
    "default client": {"client-id": None},
}


@pytest.mark.parametrize("of", ENTITIES)
def test_librdkafka_obeys_a_produce_quota(node: SecureNode, of: str) -> None:
    conf = user(node, f"by-{of}")
    limit(node, ENTITIES[of], producer_byte_rate=RATE)
    try:
        took_s, throttled_ms = produce(conf)
    finally:
        limit(node, ENTITIES[of], producer_byte_rate=None)
    assert throttled_ms > 0
    check_rate(RECORDS * RECORD_BYTES, took_s)
    assert produce(conf)[0] < took_s / 2


def test_two_clients_of_one_user_share_his_quota(node: SecureNode) -> None:
    conf = user(node, "shared")
    limit(node, {"user": "shared"}, producer_byte_rate=RATE)
    producers = [Producer(conf | {"client.id": f"app-{n}", "linger.ms": 0}) for n in range(2)]
    start = time.monotonic()
    for producer in producers:
        for _ in range(RECORDS // 2):
            producer.produce(TOPIC, bytes(RECORD_BYTES))
    for producer in producers:
        assert producer.flush(30) == 0
    for producer in producers:
        producer.produce(TOPIC, b"one more")
        assert producer.flush(30) == 0
    check_rate(RECORDS * RECORD_BYTES, time.monotonic() - start)


def test_an_address_is_limited_besides_its_users(node: SecureNode) -> None:
    conf = user(node, "at-home")
    limit(node, {"user": "at-home"}, producer_byte_rate=100 * RATE)
    limit(node, {"ip": "127.0.0.1"}, producer_byte_rate=RATE)
    try:
        took_s, throttled_ms = produce(conf)
    finally:
        limit(node, {"ip": "127.0.0.1"}, producer_byte_rate=None)
    assert throttled_ms > 0
    check_rate(RECORDS * RECORD_BYTES, took_s)


def test_librdkafka_obeys_a_fetch_quota(node: SecureNode) -> None:
    writer = Producer(user(node, "writer") | {"batch.num.messages": 2, "linger.ms": 0})
    for _ in range(RECORDS):
        writer.produce("read", bytes(RECORD_BYTES))
    assert writer.flush(30) == 0
    conf = user(node, "reader") | {"group.id": "reader", "max.partition.fetch.bytes": 50_000}
    limit(node, {"user": "reader"}, consumer_byte_rate=RATE)
    seen = Statistics()
    consumer = Consumer(conf | {"stats_cb": seen, "statistics.interval.ms": 100})
    start, read_bytes = time.monotonic(), 0
    try:
        consumer.assign([TopicPartition("read", 0, 0)])
        while read_bytes < RECORDS * RECORD_BYTES:
            message = consumer.poll(10)
            assert message is not None
            assert message.error() is None
            read_bytes += len(message.value() or b"")
        check_rate(read_bytes, time.monotonic() - start)
        consumer.poll(0.2)
    finally:
        consumer.close()
    assert seen.longest_ms > 0


@pytest.mark.needs("java", "maven")
def test_java_obeys_a_produce_quota(
    node: SecureNode, tmp_path_factory: pytest.TempPathFactory
) -> None:
    user(node, "java")
    limit(node, {"user": "java"}, producer_byte_rate=RATE)
    with Java(tmp_path_factory.mktemp("java-log") / "log") as java:
        settings = java_client.settings(node, "SASL_PLAINTEXT")
        settings |= java_client.password("SCRAM-SHA-256", "java", USER_PASSWORD)
        java.client("java", settings)
        took_ms, throttled_ms = java.do("flood", "java", TOPIC, RECORDS, RECORD_BYTES).split()
    assert int(throttled_ms) > 0
    check_rate(RECORDS * RECORD_BYTES, int(took_ms) / 1000)


def test_who_does_not_wait_is_not_read_from(node: SecureNode) -> None:
    user(node, "rude")
    limit(node, {"user": "rude"}, producer_byte_rate=RATE)
    with node.login("rude") as client:
        start = time.monotonic()
        for _ in range(RECORDS):
            client.send(*large_request())
        for _ in range(RECORDS):
            client.receive()
        client.ask(*requests.produce(TOPIC))
        check_rate(RECORDS * RECORD_BYTES, time.monotonic() - start)


@pytest.mark.parametrize("kind", ["requests", "produce requests"])
def test_requests_are_counted_whatever_they_ask(node: SecureNode, kind: str) -> None:
    name = f"asks {kind}"
    user(node, name)
    limit(node, {"user": name}, request_rate=20.0)
    count = 60
    with node.login(name) as client:
        start, told_ms = time.monotonic(), 0
        for number in range(count):
            if kind == "produce requests":
                answer = client.ask(*requests.produce(TOPIC))
            else:
                answer = client.ask(
                    MetadataRequest(topics=[]) if number % 2 else ListGroupsRequest()
                )
            told_ms = max(told_ms, answer.throttle_time_ms)
        took_s = time.monotonic() - start
    assert told_ms > 0
    assert count <= 20.0 * (took_s + 1.0) * 1.1 + 1
    assert took_s < 5


def test_one_who_waits_does_not_hold_up_others(node: SecureNode) -> None:
    for name in ("greedy", "modest"):
        user(node, name)
    limit(node, {"user": "greedy"}, producer_byte_rate=1_000.0)
    with node.login("greedy") as greedy, node.login("modest") as modest:
        assert greedy.ask(*large_request()).throttle_time_ms > 5_000
        greedy.send(*large_request())
        for _ in range(20):
            start = time.monotonic()
            assert modest.ask(*large_request()).throttle_time_ms == 0
            assert time.monotonic() - start < 2
        greedy.socket.settimeout(1)
        with pytest.raises(TimeoutError):
            greedy.receive()


def test_a_limit_that_is_raised_counts_at_once(node: SecureNode) -> None:
    user(node, "raised")
    limit(node, {"user": "raised"}, producer_byte_rate=RECORD_BYTES / 2)
    with node.login("raised") as client:
        assert client.ask(*large_request()).throttle_time_ms > 500
        limit(node, {"user": "raised"}, producer_byte_rate=10 * RATE)
        for _ in range(5):
            assert client.ask(*large_request()).throttle_time_ms == 0


def test_connections_of_an_address_are_limited_by_its_quota(node: SecureNode) -> None:
    limit(node, {"ip": "127.0.0.2"}, connection_creation_rate=2.0)

    def connects(source: str) -> bool:
        try:
            with CallerFrom(node.address("PLAINTEXT"), source) as client:
                client.ask(MetadataRequest(topics=[]))
        except ConnectionError:
            return False
        return True

    tried = [connects("127.0.0.2") for _ in range(8)]
    assert tried[:2] == [True, True]
    assert not all(tried)
    assert all(connects("127.0.0.3") for _ in range(8))
    time.sleep(1.1)
    assert connects("127.0.0.2")
