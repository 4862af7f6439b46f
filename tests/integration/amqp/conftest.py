"""Nodes that speak AMQP, and connections of pika to them."""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pika
import pytest
from bench.peers.rabbitmq.peer import RabbitMq
from pika.exceptions import AMQPError
from tests.integration.several import node_under_test

from mainstem.testing.local_node import LocalNode

WITH_AMQP = ("--set", "amqp.enabled=true", "--set", "groups.initial_rebalance_delay_ms=100")
_numbers = itertools.count()


class Server(Protocol):
    """Whatever speaks AMQP on a port of this machine."""

    amqp: str


@pytest.fixture(scope="session")
def amqp_node() -> Iterator[LocalNode]:
    """A node for tests that use names of their own and leave it running."""
    with node_under_test(WITH_AMQP) as node:
        yield node


@pytest.fixture(
    scope="session",
    params=["mainstem", pytest.param("rabbitmq", marks=pytest.mark.needs("rabbitmq"))],
)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A node, then RabbitMQ: what a test claims has to hold for both."""
    if request.param == "rabbitmq":
        with RabbitMq() as rabbitmq:
            yield rabbitmq
    else:
        yield request.getfixturevalue("amqp_node")


@pytest.fixture
def own_amqp_node() -> Iterator[LocalNode]:
    """A node of the test's own, to be stopped and killed."""
    with LocalNode(arguments=WITH_AMQP) as node:
        yield node


@pytest.fixture
def name() -> Callable[[str], str]:
    """Names that no other test uses."""
    return lambda kind: f"{kind}-{next(_numbers)}"


def dial(node: Server, **options: Any) -> Any:
    """A connection of pika."""
    host, _, port = node.amqp.rpartition(":")
    options = {"heartbeat": 30, "socket_timeout": 20} | options
    return pika.BlockingConnection(pika.ConnectionParameters(host, int(port), **options))


def hang_up(connection: Any) -> None:
    """Let pika notice that its connection is gone."""
    with contextlib.suppress(AMQPError):
        connection.process_data_events(5)
    assert connection.is_closed


@pytest.fixture
def connection(amqp_node: LocalNode) -> Iterator[Any]:
    """A connection of pika to the shared node."""
    made = dial(amqp_node)
    yield made
    if made.is_open:
        made.close()


@pytest.fixture
def channel(connection: Any) -> Any:
    """A channel with confirms."""
    made = connection.channel()
    made.confirm_delivery()
    return made


def drained(channel: Any, queue: str, count: int, *, wait_s: float = 10.0) -> list[Any]:
    """So many messages of a queue, acknowledged, as (method, properties, body)."""
    found: list[Any] = []
    for method, properties, body in channel.consume(queue, inactivity_timeout=wait_s):
        assert method is not None, f"{len(found)} of {count} messages came"
        channel.basic_ack(method.delivery_tag)
        found.append((method, properties, body))
        if len(found) == count:
            break
    channel.cancel()
    return found
