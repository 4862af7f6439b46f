"""HTTP beside Kafka on one real node: what one writes, the other reads; answers are kept."""

import json
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import closing

import httpx
import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ConfigResource,
    ResourceType,
)
from prometheus_client.parser import text_string_to_metric_families
from tests.integration.several import NODES, node_under_test
from tests.kit.waiting import wait_until

from mainstem.testing.local_node import LocalNode


@pytest.fixture(scope="module")
def node() -> Iterator[LocalNode]:
    with node_under_test() as made:
        yield made


@pytest.fixture(scope="module")
def http(node: LocalNode) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{node.http}", timeout=30) as made:
        yield made


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


def consumed(node: LocalNode, topic: str, count: int, partitions: int = 1) -> list[Message]:
    consumer = Consumer(
        {
            "bootstrap.servers": node.kafka,
            "group.id": "unused",
            "check.crcs": True,
            "enable.auto.commit": False,
        }
    )
    found: list[Message] = []
    with closing(consumer):
        consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
        deadline = time.monotonic() + 20
        while len(found) < count and time.monotonic() < deadline:
            for message in consumer.consume(count, timeout=0.5):
                assert message.error() is None, message.error()
                found.append(message)
    return found


def test_what_http_stores_a_kafka_client_reads(
    node: LocalNode, http: httpx.Client, topic: str
) -> None:
    stored = http.post(
        f"/v1/topics/{topic}/messages",
        json={
            "messages": [
                {
                    "key": "k",
                    "value": "grüße",
                    "headers": {"h": "1"},
                    "timestamp": 1_700_000_000_000,
                },
                {"key": "k", "value": None},
                {"value": "AP8=", "value_encoding": "base64"},
            ]
        },
    )
    assert stored.status_code == 200, stored.text
    first, second, third = consumed(node, topic, 3)
    assert (first.key(), first.value()) == (b"k", "grüße".encode())
    assert first.headers() == [("h", b"1")]
    assert first.timestamp()[1] == 1_700_000_000_000
    assert (second.key(), second.value()) == (b"k", None)
    assert (third.key(), third.value()) == (None, b"\x00\xff")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_a_kafka_client_stores_http_shows(
    node: LocalNode, http: httpx.Client, topic: str, codec: str
) -> None:
    producer = Producer(
        {"bootstrap.servers": node.kafka, "compression.type": codec, "linger.ms": 50}
    )
    for n in range(200):
        producer.produce(topic, value=f"value {n} ".encode() * 20, key=b"k", headers={"n": str(n)})
    assert producer.flush(20) == 0
    shown = http.get(f"/v1/topics/{topic}/messages", params={"offset": 117, "limit": 3}).json()
    assert [message["offset"] for message in shown] == [117, 118, 119]
    assert shown[0]["value"] == "value 117 " * 20
    assert shown[0]["headers"] == [{"name": "n", "value": "117", "encoding": "text"}]


def test_keys_meet_on_one_partition_whichever_way_they_come(
    node: LocalNode, http: httpx.Client, topic: str
) -> None:
    http.put(f"/v1/topics/{topic}", json={"partitions": 7}).raise_for_status()
    keys = [f"key-{n}" for n in range(30)]
    stored = http.post(
        f"/v1/topics/{topic}/messages", json=[{"key": key, "value": "http"} for key in keys]
    ).json()
    by_http = {key: place["partition"] for key, place in zip(keys, stored["offsets"], strict=True)}
    producer = Producer({"bootstrap.servers": node.kafka, "partitioner": "murmur2_random"})
    for key in keys:
        producer.produce(topic, key=key.encode(), value=b"kafka")
    assert producer.flush(20) == 0
    messages = consumed(node, topic, 60, partitions=7)
    assert len(messages) == 60
    for message in messages:
        assert message.partition() == by_http[(message.key() or b"").decode()]


def test_a_topic_made_over_http_is_a_kafka_topic(
    node: LocalNode, http: httpx.Client, topic: str
) -> None:
    made = http.put(
        f"/v1/topics/{topic}", json={"partitions": 3, "configs": {"retention.ms": 60_000}}
    )
    assert made.status_code == 201
    admin = AdminClient({"bootstrap.servers": node.kafka})
    assert len(admin.list_topics(timeout=10).topics[topic].partitions) == 3
    resource = ConfigResource(ResourceType.TOPIC, topic)
    configs = admin.describe_configs([resource])[resource].result(10)
    assert configs["retention.ms"].value == "60000"
    grown = http.put(
        f"/v1/topics/{topic}", json={"partitions": 4, "configs": {"retention.ms": None}}
    )
    assert grown.status_code == 200
    # Where there are several nodes, any of them may be asked, and hear of it a moment later.
    wait_until(lambda: len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 4)
    assert http.put(f"/v1/topics/{topic}", json={"partitions": 2}).status_code == 409
    assert http.post("/v1/topics", json={"name": topic}).status_code == 409
    wrong = http.put(f"/v1/topics/{topic}", json={"configs": {"retention.mss": "1"}})
    assert wrong.status_code == 400
    assert "retention.ms" in wrong.json()["remedy"]
    gone = http.delete(f"/v1/topics/{topic}").json()
    assert gone == {"deleted": topic, "partitions_removed": 4}
    wait_until(lambda: topic not in admin.list_topics(timeout=10).topics)
    assert http.get(f"/v1/topics/{topic}").status_code == 404


def test_a_message_larger_than_its_topic_allows_is_a_413(http: httpx.Client, topic: str) -> None:
    http.put(f"/v1/topics/{topic}", json={"configs": {"max.message.bytes": 1000}})
    small = http.post(f"/v1/topics/{topic}/messages", json=[{"value": "x" * 400}] * 20)
    assert small.status_code == 200, small.text
    large = http.post(f"/v1/topics/{topic}/messages", json={"value": "x" * 2000})
    assert large.status_code == 413
    assert large.json()["code"] == "RECORD_TOO_LARGE"


def test_a_compacted_topic_wants_a_key(http: httpx.Client, topic: str) -> None:
    http.put(f"/v1/topics/{topic}", json={"configs": {"cleanup.policy": "compact"}})
    assert http.post(f"/v1/topics/{topic}/messages", json={"value": "v"}).status_code == 400
    keyed = http.post(f"/v1/topics/{topic}/messages", json={"key": "k", "value": "v"})
    assert keyed.status_code == 200


def test_a_time_finds_its_message(http: httpx.Client, topic: str) -> None:
    start = 1_700_000_000_000
    for n in range(5):
        http.post(
            f"/v1/topics/{topic}/messages", json={"value": str(n), "timestamp": start + n * 1000}
        ).raise_for_status()
    shown = http.get(
        f"/v1/topics/{topic}/messages", params={"from_timestamp": "2023-11-14T22:13:23Z"}
    ).json()
    assert [message["value"] for message in shown] == ["3", "4"]


def test_a_group_shows_its_position_and_lag(
    node: LocalNode, http: httpx.Client, topic: str
) -> None:
    http.post(f"/v1/topics/{topic}/messages", json=[{"value": str(n)} for n in range(10)])
    group = f"g/{topic}"  # a slash is legal in a group's name
    consumer = Consumer(
        {
            "bootstrap.servers": node.kafka,
            "group.id": group,
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    with closing(consumer):
        consumer.subscribe([topic])
        seen = 0
        while seen < 4:
            seen += len(consumer.consume(4 - seen, timeout=1))
        consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
        body = http.get(f"/v1/groups/{group.replace('/', '%2F')}").json()
        assert body["state"] == "Stable"
        assert body["protocol_type"] == "consumer"
        assert [member["client_id"] for member in body["members"]] == ["reader"]
        assert body["leader_id"] == body["members"][0]["member_id"]
        assert body["committed_offsets"] == {f"{topic}-0": 4}
        assert body["total_lag"] == 6
        assert http.delete(f"/v1/groups/{group}").status_code == 409
        listed = {line["group_id"]: line for line in http.get("/v1/groups").json()}
        assert listed[group]["member_count"] == 1
        assert listed[group]["generation_id"] == body["generation_id"]
        if NODES == 1:  # a node measures the groups that it coordinates
            metrics = http.get("/metrics").text
            lags = {
                sample.labels["group"]: sample.value
                for family in text_string_to_metric_families(metrics)
                for sample in family.samples
                if sample.name == "mainstem_group_lag_records"
            }
            assert lags[group] == 6
    assert http.delete(f"/v1/groups/{group}").json() == {"deleted": group}
    assert http.get(f"/v1/groups/{group}").status_code == 404
    assert http.get("/v1/groups/absent").status_code == 404


@pytest.mark.lone("a node counts what happens at it")
def test_metrics_count_what_happened(http: httpx.Client, topic: str) -> None:
    before = http.get("/metrics/json").json()
    http.post(f"/v1/topics/{topic}/messages", json=[{"value": "x"}] * 7)
    http.get(f"/v1/topics/{topic}/messages")
    time.sleep(1.1)  # figures are computed once a second
    after = http.get("/metrics/json").json()
    published = after["total_messages_published"] - before["total_messages_published"]
    delivered = after["total_messages_delivered"] - before["total_messages_delivered"]
    assert (published, delivered) == (7, 7)
    assert after["log_size_bytes"] > before["log_size_bytes"]
    assert after["memory_usage_mb"] < 300
    families = {family.name for family in text_string_to_metric_families(http.get("/metrics").text)}
    assert {"mainstem_broker_messages_in", "mainstem_stream_end_offset"} <= families


def test_the_broker_and_its_health_are_told(node: LocalNode, http: httpx.Client) -> None:
    broker = http.get("/v1/broker").json()
    assert f"127.0.0.1:{broker['port']}" == node.kafka
    assert f"127.0.0.1:{broker['http_port']}" == node.http
    assert broker["log_dir"] == str(node.data_dir)
    for path in ("/health", "/health/live", "/health/ready"):
        assert http.get(path).status_code == 200
    assert http.get("/health").json()["is_healthy"] is True


def test_internal_topics_are_shown_only_on_request_and_never_written(
    http: httpx.Client, topic: str
) -> None:
    plain = {line["name"] for line in http.get("/v1/topics").json()}
    assert not any(name.startswith("__") for name in plain)
    every = {line["name"] for line in http.get("/v1/topics?internal=true").json()}
    for name in every - plain:
        assert http.delete(f"/v1/topics/{name}").status_code == 403
        refused = http.post(f"/v1/topics/{name}/messages", json={"value": "v"})
        assert refused.status_code == 403


@pytest.mark.needs("curl")
def test_curl_alone_is_enough(node: LocalNode, topic: str) -> None:
    def curl(*arguments: str) -> str:
        command = ["curl", "-sS", "--fail-with-body", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    address = f"http://{node.http}/v1/topics/{topic}"
    curl("-X", "PUT", address, "-d", '{"partitions": 2}')
    curl(f"{address}/messages", "-d", '{"messages": [{"key": "k", "value": "v", "partition": 1}]}')
    curl(
        f"{address}/messages?key=raw&partition=1",
        "-H",
        "content-type: application/octet-stream",
        "--data-binary",
        "@/etc/hostname",
    )
    shown = json.loads(curl(f"{address}/messages?partition=1&limit=10"))
    assert [message["key"] for message in shown] == ["k", "raw"]
    large = subprocess.run(
        ["curl", "-sS", "-w", "%{http_code}", f"{address}/messages", "--data-binary", "@-"],
        input=b"x" * 3_000_000,
        capture_output=True,
        check=False,
    )
    assert large.stdout.endswith(b"413")
    curl("-X", "DELETE", address)


@pytest.mark.lone("another node serves it, or its copy mends this one")
def test_a_byte_that_changed_on_disk_is_corruption_and_never_data(
    node: LocalNode, http: httpx.Client, topic: str
) -> None:
    for value in ("first", "second", "third"):
        http.post(f"/v1/topics/{topic}/messages", json={"value": value}).raise_for_status()
    [segment] = (node.data_dir / "topics").glob(f"{topic}~*/**/*.log")
    with segment.open("r+b") as file:
        at = file.read().index(b"second")
        file.seek(at)
        file.write(b"S")
    address = f"/v1/topics/{topic}/messages"
    before = http.get(address)
    damaged = http.get(address, params={"offset": 1})
    if before.status_code == 200:  # what lies before the damage may be shown
        assert [message["value"] for message in before.json()] == ["first"]
        assert before.headers["mainstem-damaged-offset"] == "1"
    assert damaged.status_code == 500
    assert damaged.json()["code"] == "CORRUPT"
    assert http.get("/health/live").status_code == 200


def test_what_was_answered_survives_a_kill_and_a_stop_is_quick() -> None:
    with LocalNode() as node, httpx.Client(base_url=f"http://{node.http}") as http:
        http.put("/v1/topics/t", json={"partitions": 2}).raise_for_status()
        values = [f"{n}" for n in range(20)]
        for value in values:
            http.post("/v1/topics/t/messages?partition=1", json={"value": value}).raise_for_status()
        node.kill9()
        node.start()
        shown = httpx.get(f"http://{node.http}/v1/topics/t/messages?partition=1").json()
        assert [message["value"] for message in shown] == values
        with httpx.Client(base_url=f"http://{node.http}") as kept:
            kept.get("/health").raise_for_status()  # an idle connection does not delay the stop
            started = time.monotonic()
            assert node.stop() == 0
            assert time.monotonic() - started < 5
