"""Connections that never log in cannot end a node, nor replace those that have."""

import contextlib
import http.client
import json
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from confluent_kafka import Producer
from tests.kit.attacks import IdleConnections, descriptors, python_with_few_descriptors
from tests.kit.waiting import wait_until

from mainstem.testing.local_node import LocalNode

DESCRIPTORS = 1_000
ATTEMPTS = 5_000
LISTENERS = ("kafka", "amqp", "mqtt", "native", "http")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    """A node that may have a thousand descriptors."""
    python = python_with_few_descriptors(tmp_path, DESCRIPTORS)
    enabled = ("amqp.enabled=true", "mqtt.enabled=true", "native.enabled=true")
    flags = [word for setting in enabled for word in ("--set", setting)]
    with LocalNode(arguments=flags, python=python) as made:
        yield made
        assert "Traceback" not in made.log_text(), made.log_tail()
        assert made.stop() == 0


def idle_connections(node: LocalNode, listeners: tuple[str, ...] = LISTENERS) -> IdleConnections:
    return IdleConnections([str(node.announced[listener]) for listener in listeners])


class Clients:
    """A Kafka producer, an AMQP publisher and an HTTP client, each on connections it keeps."""

    def __init__(self, node: LocalNode) -> None:
        self._kafka = Producer(
            {"bootstrap.servers": node.kafka, "topic.metadata.refresh.sparse": 1}
        )
        host, _, port = node.amqp.rpartition(":")
        self._amqp = pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))
        self._channel = self._amqp.channel()
        self._channel.queue_declare("work")
        self._channel.confirm_delivery()
        self._http = http.client.HTTPConnection(node.http, timeout=20)

    def use(self) -> None:
        """Write by every protocol; raises where something is not confirmed."""
        failed: list[object] = []
        self._kafka.produce("before", b"x", on_delivery=lambda error, _: failed.append(error))
        assert self._kafka.flush(20) == 0
        assert failed == [None]
        self._channel.basic_publish("", "work", b"x", mandatory=True)
        self.post("before")

    def post(self, topic: str) -> None:
        body = json.dumps({"value": "x"})
        headers = {"content-type": "application/json"}
        self._http.request("POST", f"/v1/topics/{topic}/messages", body, headers)
        answer = self._http.getresponse()
        assert answer.status < 300, answer.read()
        answer.read()

    def metrics(self) -> str:
        self._http.request("GET", "/metrics")
        return self._http.getresponse().read().decode()

    def close(self) -> None:
        self._http.close()
        self._amqp.close()


def test_five_thousand_idle_connections_leave_connected_clients_alone(node: LocalNode) -> None:
    with (
        contextlib.closing(Clients(node)) as clients,
        contextlib.closing(idle_connections(node)) as idle,
    ):
        clients.use()
        idle.connect(ATTEMPTS)
        assert descriptors(node) < DESCRIPTORS
        wait_until(lambda: 0 < len(idle) < DESCRIPTORS)  # a busy node refuses a moment later
        clients.use()
        clients.post("made-meanwhile")
        shown = clients.metrics()
        for listener in LISTENERS:
            assert f'mainstem_connections_refused_total{{protocol="{listener}"' in shown
            assert f'mainstem_connections{{protocol="{listener}"}}' in shown
        idle.close()
        wait_until(lambda: 'mainstem_connections{protocol="mqtt"} 0.0' in clients.metrics())
        wait_until(lambda: 'mainstem_connections{protocol="http"} 1.0' in clients.metrics())
    with contextlib.closing(Clients(node)) as later:
        later.use()
        later.post("made-afterwards")


def test_connections_that_send_nothing_are_closed_in_time(tmp_path: Path) -> None:
    enabled = ("amqp.enabled=true", "mqtt.enabled=true", "native.enabled=true")
    settings = (*enabled, "security.login_timeout_ms=1000")
    flags = [word for setting in settings for word in ("--set", setting)]
    with LocalNode(tmp_path, arguments=flags) as node:
        # HTTP has a deadline of its own for the head of a request.
        idle = idle_connections(node, ("kafka", "amqp", "mqtt", "native"))
        idle.connect(4)
        assert len(idle) == 4
        wait_until(lambda: len(idle) == 0, within_s=30)
        assert "Traceback" not in node.log_text(), node.log_tail()
