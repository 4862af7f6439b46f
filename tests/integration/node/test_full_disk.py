"""A node on a file system of a few megabytes, filled by its clients and by others."""

import json
import os
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pika
import pika.exceptions
import pytest
from confluent_kafka import KafkaException, Producer
from paho.mqtt.enums import CallbackAPIVersion
from tests.kit.waiting import wait_until

from mainstem.testing.local_node import LocalNode

pytestmark = [pytest.mark.needs("root"), pytest.mark.lone("its disk"), pytest.mark.timeout(240)]

SIZE = 64 << 20  # a segment has 63 MiB allocated ahead after it has doubled six times
PAYLOAD = os.urandom(100_000)
LARGE = os.urandom(50_000)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    mounted = tmp_path / "small"
    mounted.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(mounted)], check=True
    )
    settings = ("log.retention_check_interval_ms=200", "amqp.enabled=true", "mqtt.enabled=true")
    arguments = [part for setting in settings for part in ("--set", setting)]
    try:
        with LocalNode(mounted / "data", arguments=arguments) as started:
            yield started
    finally:
        subprocess.run(["umount", "--lazy", str(mounted)], check=True)


def asked(node: LocalNode, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://{node.http}{path}", data, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def metric(node: LocalNode, name: str) -> float:
    text = asked(node, "GET", "/metrics")[1].decode()
    [line] = [line for line in text.splitlines() if line.startswith(name + " ")]
    return float(line.rpartition(" ")[2])


def disk_of(node: LocalNode) -> Any:
    parts = json.loads(asked(node, "GET", "/health")[1])["components"]
    [disk] = [part for part in parts if part["name"] == "disk"]
    return disk


def produced(node: LocalNode, topic: str, count: int, timeout_ms: int = 3_000) -> int:
    """How many of so many records of 100 kB were acknowledged."""
    done: list[bool] = []
    producer = Producer(
        {"bootstrap.servers": node.kafka, "message.timeout.ms": timeout_ms, "linger.ms": 0}
    )
    for _ in range(count):
        while True:
            try:
                producer.produce(
                    topic, PAYLOAD, on_delivery=lambda error, _: done.append(not error)
                )
                break
            except (BufferError, KafkaException):
                producer.poll(0.1)
        producer.poll(0)
    producer.flush(60)
    return sum(done)


def amqp(node: LocalNode, **rest: Any) -> pika.BlockingConnection:
    host, _, port = node.amqp.partition(":")
    return pika.BlockingConnection(pika.ConnectionParameters(host, int(port), **rest))


def assert_amqp_refuses(node: LocalNode) -> pika.BlockingConnection:
    """A publisher with confirms gets a nack and is told that it is blocked."""
    connection = amqp(node)
    blocked: list[object] = []
    connection.add_on_connection_blocked_callback(lambda *told: blocked.append(told))
    channel = connection.channel()
    channel.queue_declare("jobs")
    channel.confirm_delivery()
    with pytest.raises(pika.exceptions.NackError):
        channel.basic_publish("", "jobs", b"x")
    connection.process_data_events(0.2)
    assert blocked
    return connection  # it is read no further, and would not be answered if it closed


def assert_mqtt_refuses(node: LocalNode) -> None:
    """A publisher of MQTT 5 is told that there is no room."""
    host, _, port = node.mqtt.partition(":")
    client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    told: list[int] = []
    client.on_publish = lambda _c, _u, _m, reason, _p: told.append(reason.value)
    client.connect(host, int(port))
    client.loop_start()
    try:
        client.publish("after", b"x", qos=1)
        wait_until(lambda: told)
    finally:
        client.loop_stop()
    assert told == [0x97]


def is_writable(node: LocalNode) -> bool:
    return asked(node, "POST", "/v1/topics/after/messages", {"value": "x"})[0] == 200


def test_a_full_disk_refuses_records_and_nothing_else(node: LocalNode) -> None:
    for topic in ("big", "after"):
        assert asked(node, "PUT", f"/v1/topics/{topic}", {"partitions": 1})[0] in {200, 201}
    stored = produced(node, "big", 800)
    assert 400 < stored < 620  # of 671 that would fill it
    # Records are refused in the words of each protocol, the reserve is kept, and it is said.
    code, body = asked(node, "POST", "/v1/topics/after/messages", {"value": "x"})
    assert code == 507
    assert b"DISK_FULL" in body
    waiting = assert_amqp_refuses(node)
    assert_mqtt_refuses(node)
    assert metric(node, "mainstem_disk_full") == 1
    reserve = SIZE // 10
    assert reserve * 3 // 4 < metric(node, "mainstem_disk_free_bytes") < SIZE // 8
    assert reserve * 3 // 4 < os.statvfs(node.data_dir).f_bavail * 4096
    assert disk_of(node)["state"] == "degraded"
    assert asked(node, "GET", "/health/ready")[0] == 200
    # What is there can be read; metadata can be written: topics are made and deleted.
    found = asked(node, "GET", "/v1/topics/big/messages?partition=0&offset=0&limit=1")
    assert found[0] == 200
    # Another program takes the rest. The node goes on, stops and starts again.
    hog = node.data_dir.parent / "hog"
    subprocess.run(["dd", "if=/dev/zero", f"of={hog}", "bs=4096"], check=False, capture_output=True)
    assert os.statvfs(node.data_dir).f_bavail == 0
    assert asked(node, "POST", "/v1/topics/after/messages", {"value": "x"})[0] == 507
    node.stop()
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        waiting.process_data_events(10)
    node.start()
    assert disk_of(node)["state"] == "degraded"
    assert asked(node, "GET", "/v1/topics/big/messages?partition=0&offset=0&limit=1")[0] == 200
    # Deleting gives the space back at once, the open segment's too, and writing goes on.
    hog.unlink()
    assert asked(node, "DELETE", "/v1/topics/big")[0] in {200, 204}
    wait_until(lambda: is_writable(node))
    wait_until(lambda: os.statvfs(node.data_dir).f_bavail * 4096 > SIZE * 3 // 4)
    assert metric(node, "mainstem_disk_full") == 0
    assert disk_of(node)["state"] == "ok"
    log = node.log_path.read_text()
    assert log.count("records are refused") == 2  # once for each time that it began
    assert log.count("has space again") == 1


class Unconfirmed:
    """A publisher that asks for no confirms and cares for nothing but its socket."""

    def __init__(self, node: LocalNode, queue: str, count: int) -> None:
        self.sent = 0
        self.said: list[str] = []
        self.failed: BaseException | None = None
        self._node, self._queue, self._count = node, queue, count
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            connection = amqp(self._node)
            connection.add_on_connection_blocked_callback(lambda *_: self.said.append("blocked"))
            connection.add_on_connection_unblocked_callback(
                lambda *_: self.said.append("unblocked")
            )
            channel = connection.channel()
            for number in range(self._count):
                channel.basic_publish("", self._queue, b"%d " % number + LARGE)
                connection.process_data_events(0)
                self.sent += 1
            # All was written to the socket; the node may not have read it yet.
            wait_until(lambda: connection.process_data_events(0.1) or self.said[-1] == "unblocked")
            connection.close()
        except (pika.exceptions.AMQPError, OSError) as error:
            self.failed = error

    def done(self) -> bool:
        self._thread.join(0.05)
        return not self._thread.is_alive()


def taken(node: LocalNode, queue: str, count: int) -> list[int]:
    """Get messages and acknowledge them; their numbers."""
    found: list[int] = []
    with amqp(node) as connection:
        channel = connection.channel()
        for method, _, body in channel.consume(queue, inactivity_timeout=10):
            if method is None:
                break
            found.append(int(body.split()[0]))
            channel.basic_ack(method.delivery_tag)
            if len(found) == count:
                break
        channel.cancel()
    return found


def test_publishers_of_amqp_wait_for_space_and_lose_nothing(node: LocalNode) -> None:
    hog = node.data_dir.parent / "hog"
    hog.write_bytes(bytes(26 << 20))
    with amqp(node) as connection:
        connection.channel().queue_declare("jobs", durable=True)
    count = 650
    publisher = Unconfirmed(node, "jobs", count)
    wait_until(lambda: metric(node, "mainstem_disk_full") == 1)
    stopped_at = -1
    while stopped_at != publisher.sent:
        stopped_at = publisher.sent
        time.sleep(1)
    # Another one comes while there is no room: it is told with its first message.
    polite = amqp(node)
    said: list[str] = []
    polite.add_on_connection_blocked_callback(lambda *_: said.append("blocked"))
    polite.add_on_connection_unblocked_callback(lambda *_: said.append("unblocked"))
    polite.channel().basic_publish("", "jobs", b"1000 polite")
    wait_until(lambda: polite.process_data_events(0.1) or said == ["blocked"])
    # Consumers go on.
    assert taken(node, "jobs", 20) == list(range(20))
    assert publisher.sent == stopped_at, "nothing more is read from it"
    assert not publisher.done()
    assert metric(node, "mainstem_disk_full") == 1
    assert said == ["blocked"]
    hog.unlink()
    wait_until(lambda: polite.process_data_events(0.1) or said == ["blocked", "unblocked"])
    polite.close()
    wait_until(publisher.done, within_s=60)
    assert publisher.failed is None, publisher.failed
    assert publisher.said == ["blocked", "unblocked"] * (len(publisher.said) // 2)
    rest = taken(node, "jobs", count - 20 + 1)
    assert [number for number in rest if number != 1_000] == list(range(20, count))
    assert 1_000 in rest
