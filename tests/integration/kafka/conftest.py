"""The brokers that the same claims are made about: a node, and Apache Kafka started beside it.

Apache Kafka is started once in a process of tests, by the first test that asks for it.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
from bench.peers.kafka.peer import ApacheKafka
from bench.peers.maven import SHORT_LIVED
from confluent_kafka import KafkaException
from tests.clients.oracle import Oracle

BOTH = ["mainstem", pytest.param("kafka", marks=pytest.mark.needs("java", "maven"))]

READY_S = 30


class Broker(Protocol):
    """Whatever speaks Kafka's protocol on a port of this machine."""

    kafka: str
    data_dir: Path


def is_apache(broker: Broker) -> bool:
    """Whether it is Apache Kafka, where it is known to differ."""
    return isinstance(broker, ApacheKafka)


def create(
    broker: Broker, topic: str, partitions: int = 1, configs: dict[str, str] | None = None
) -> Oracle:
    """Make a topic that can be written to.

    Difference: Apache Kafka answers before the leaders of the partitions are ready, and refuses
    requests until then; a node answers when they are.
    """
    oracle = Oracle(broker.kafka)
    oracle.create(topic, partitions, configs)
    give_up_s = time.monotonic() + READY_S
    while is_apache(broker) and not _is_ready(oracle, topic, partitions):
        assert time.monotonic() < give_up_s, "the topic does not become ready"
        time.sleep(0.05)
    return oracle


def _is_ready(oracle: Oracle, topic: str, partitions: int) -> bool:
    try:
        return len(oracle.end_offsets(topic)) == partitions
    except KafkaException:  # no leader yet
        return False


@pytest.fixture(scope="session")
def apache_kafka() -> Iterator[ApacheKafka]:
    """Apache Kafka in a process that is made for a few small tests."""
    with ApacheKafka(jvm=("-Xmx512m", *SHORT_LIVED)) as kafka:
        yield kafka


@pytest.fixture(params=BOTH)
def broker(request: pytest.FixtureRequest) -> Broker:
    """A node, then Apache Kafka: what a test claims has to hold for both.

    Not itself of the session: then both would be started again for every file.
    """
    name = "apache_kafka" if request.param == "kafka" else "shared_node"
    found: Broker = request.getfixturevalue(name)
    return found


@pytest.fixture(params=BOTH)
def lone_broker(request: pytest.FixtureRequest) -> Broker:
    """A broker by itself, whose settings a test may change if it takes them back."""
    name = "apache_kafka" if request.param == "kafka" else "fresh_node"
    found: Broker = request.getfixturevalue(name)
    return found
