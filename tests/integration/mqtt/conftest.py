"""Nodes that serve MQTT, and paho clients that are gone when a test is over."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.integration.mqtt.paho_client import PahoClient
from tests.integration.several import node_under_test

from mainstem.testing.local_node import LocalNode

WITH_MQTT = ("--set", "mqtt.enabled=true", "--set", "mqtt.port=0")

Dial = Callable[..., PahoClient]
_numbers = itertools.count()


@pytest.fixture(scope="session")
def mqtt_node() -> Iterator[LocalNode]:
    """A node for tests that use topics of their own and leave it running."""
    with node_under_test(WITH_MQTT) as node:
        yield node


@pytest.fixture
def own_mqtt_node() -> Iterator[LocalNode]:
    """A node of the test's own, to be stopped and killed."""
    with LocalNode(arguments=WITH_MQTT) as node:
        yield node


@pytest.fixture
def topic() -> str:
    """A topic that no other test uses."""
    return f"test/{next(_numbers)}"


@pytest.fixture
def dial() -> Iterator[Dial]:
    """Connects clients, and takes them away at the end."""
    clients: list[PahoClient] = []

    def connect(node: LocalNode, client_id: str = "", **options: Any) -> PahoClient:
        client = PahoClient(str(node.announced["mqtt"]), client_id, **options)
        clients.append(client)
        client.connect()
        return client

    yield connect
    for client in clients:
        client.close()
