"""Metrics of clients: an operator asks for some, real clients push them, and they can be read."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.integration.admin.test_cluster_by_java import Java
from tests.integration.bad_input.wire import Raw

from mainstem.testing.local_node import LocalNode
from mainstem.wire.kafka.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

PATIENCE_S = 20.0
JAVA_PREFIX = "org.apache.kafka."
CLIENT_METRICS = 16


@pytest.fixture
def node() -> Iterator[LocalNode]:
    with LocalNode() as running:
        yield running


def lines(node: LocalNode, client_id: str) -> list[dict[str, Any]]:
    """What a client has pushed so far."""
    path = node.data_dir / "client-metrics.jsonl"
    if not path.exists():
        return []
    pushed = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in pushed if line["client_id"] == client_id]


def names(pushed: list[dict[str, Any]]) -> set[str]:
    return {metric["name"] for line in pushed for metric in line["metrics"]}


def subscribe(node: LocalNode, name: str, **configs: str) -> None:
    """Clients that match are asked for metrics."""
    changes = [AlterableConfig(key.replace("_", "."), 0, text) for key, text in configs.items()]
    resource = AlterConfigsResource(CLIENT_METRICS, name, changes)
    with Raw(node.kafka) as raw:
        answer = raw.call(44, 1, IncrementalAlterConfigsRequest(resources=[resource]))
    assert [each.error_code for each in answer.responses] == [0]


def test_librdkafka_pushes_what_it_is_asked_for(node: LocalNode) -> None:
    subscribe(node, "rd", metrics="*", interval_ms="200", match="client_id=rd-app-.*")
    settings = {"bootstrap.servers": node.kafka}
    chosen = Producer({**settings, "client.id": "rd-app-1"})
    silent = Producer({**settings, "client.id": "rd-app-2", "enable.metrics.push": False})
    other = Producer({**settings, "client.id": "another"})
    deadline = time.monotonic() + PATIENCE_S
    while len(lines(node, "rd-app-1")) < 3 and time.monotonic() < deadline:
        for producer in (chosen, silent, other):
            producer.produce("measured", b"value")
            producer.flush(PATIENCE_S)
    pushed = lines(node, "rd-app-1")
    assert len(pushed) >= 3
    assert len({line["client_instance_id"] for line in pushed}) == 1
    assert any(name.startswith("org.apache.kafka.producer.") for name in names(pushed))
    assert {metric["kind"] for line in pushed for metric in line["metrics"]} <= {"gauge", "sum"}
    assert lines(node, "rd-app-2") == lines(node, "another") == []


@pytest.mark.slow
@pytest.mark.needs("java", "maven")
def test_java_pushes_what_it_is_asked_for(node: LocalNode, tmp_path: Any) -> None:
    with Java(node.kafka, tmp_path / "java.log") as java:
        asked = java.ask(
            "subscribe", "sub", f"metrics={JAVA_PREFIX}producer.request.", "interval.ms=100",
            "match=client_id=java-app-.*",
        )  # fmt: skip
        assert asked.startswith("ok interval.ms=100 from DYNAMIC_CLIENT_METRICS_CONFIG; ")
        assert java.ask("subscriptions") == "ok sub"
        word, instance = java.ask("produce", "measured", "java-app-1", 2_000).split()
        assert word == "ok"
        java.ask("produce", "measured", "other", 600)
        pushed = lines(node, "java-app-1")
        assert len(pushed) >= 3
        assert {line["client_instance_id"] for line in pushed} == {instance}
        assert not any(line["terminating"] for line in pushed[:-1]), "only the last one may be"
        assert pushed[0]["software"].startswith("apache-kafka-java ")
        found = names(pushed)
        assert found
        assert all(name.startswith(f"{JAVA_PREFIX}producer.request.") for name in found)
        assert lines(node, "other") == [], "its name does not match"

        assert java.ask("subscribe", "sub", "metrics=", "interval.ms=", "match=") == "ok"
        assert java.ask("subscriptions") == "ok"
        java.ask("produce", "measured", "java-app-2", 600)
        assert lines(node, "java-app-2") == []
        assert java.ask("subscribe", "bad", "match=client_id=[").startswith("InvalidConfig")
        assert java.ask("subscribe", "bad", "interval.ms=5").startswith("InvalidConfig")
