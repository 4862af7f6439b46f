"""The clients that send too much notice a node that takes it."""

from collections.abc import Iterator

import pytest
from paho.mqtt.client import MQTTv5, MQTTv311
from tests.chaos.oversize import (
    KAFKA_TOPIC_BYTES,
    LIMITS,
    create_topic,
    read_fitting,
    send_to_amqp,
    send_to_kafka,
    send_to_mqtt,
)

from mainstem.testing.local_node import LocalNode

SERVE = ("--set", "amqp.enabled=true", "--set", "mqtt.enabled=true")
LIMITED = {"max.message.bytes": str(KAFKA_TOPIC_BYTES)}


@pytest.fixture(scope="module")
def strict() -> Iterator[LocalNode]:
    with LocalNode(arguments=(*SERVE, *LIMITS)) as node:
        yield node


@pytest.fixture(scope="module")
def lax() -> Iterator[LocalNode]:
    """The mutant: its limits are above what the clients take for too large."""
    with LocalNode(arguments=SERVE) as node:
        yield node


def test_kafka_refuses_what_is_too_large_and_takes_what_fits(strict: LocalNode) -> None:
    create_topic(strict.kafka, "limited", LIMITED)
    send_to_kafka(strict.kafka, "limited", KAFKA_TOPIC_BYTES)
    read_fitting(strict.kafka, "limited")


def test_a_topic_that_takes_too_much_is_found_out(lax: LocalNode) -> None:
    create_topic(lax.kafka, "unlimited", {})
    with pytest.raises(AssertionError, match="took more"):
        send_to_kafka(lax.kafka, "unlimited", KAFKA_TOPIC_BYTES)
    with pytest.raises(AssertionError, match="has a record of"):
        read_fitting(lax.kafka, "unlimited")


def test_amqp_refuses_what_is_too_large_and_takes_what_fits(strict: LocalNode) -> None:
    send_to_amqp(strict.amqp, "oversize")


def test_a_queue_that_takes_too_much_is_found_out(lax: LocalNode) -> None:
    with pytest.raises(AssertionError, match="was confirmed"):
        send_to_amqp(lax.amqp, "oversize")


@pytest.mark.parametrize("version", [MQTTv311, MQTTv5])
def test_mqtt_refuses_what_is_too_large_and_takes_what_fits(
    strict: LocalNode, version: int
) -> None:
    send_to_mqtt(strict.mqtt, "oversize", version)


@pytest.mark.parametrize("version", [MQTTv311, MQTTv5])
def test_an_mqtt_listener_that_takes_too_much_is_found_out(lax: LocalNode, version: int) -> None:
    with pytest.raises(AssertionError, match="was confirmed"):
        send_to_mqtt(lax.mqtt, "oversize", version)
