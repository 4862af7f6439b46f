"""Queues of a cluster: one node serves them, and another one when that is gone."""

import contextlib
import time
from collections.abc import Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

from mainstem.testing.local_cluster import LocalCluster

PATIENCE_S = 60.0


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(arguments=("--set", "amqp.enabled=true")) as own:
        own.wait_for_three_voters()
        yield own


def channel_to(address: str) -> BlockingChannel:
    host, _, port = address.rpartition(":")
    parameters = pika.ConnectionParameters(host, int(port), heartbeat=0)
    channel = pika.BlockingConnection(parameters).channel()
    channel.confirm_delivery()
    return channel


def test_another_node_takes_the_queues_over_with_all_that_was_confirmed(
    cluster: LocalCluster,
) -> None:
    first, *others = cluster.nodes.values()
    channel = channel_to(first.amqp)
    channel.exchange_declare("orders", "topic", durable=True)
    channel.queue_declare("work", durable=True)
    channel.queue_bind("work", "orders", "#")
    bodies = [b"%d" % number for number in range(40)]
    for body in bodies:
        channel.basic_publish("orders", "eu", body)
    for _ in range(10):
        method, _, _ = channel.basic_get("work")
        channel.basic_ack(method.delivery_tag)
    channel.queue_declare("work", durable=True, passive=True)
    time.sleep(0.5)

    first.kill9()
    with contextlib.suppress(AMQPError):
        channel.connection.close()
    left = _drained([node.amqp for node in others])

    assert left == bodies[10:]


def test_clients_use_queues_through_any_node(cluster: LocalCluster) -> None:
    first, second, third = cluster.nodes.values()
    declaring = channel_to(first.amqp)
    declaring.queue_declare("work", durable=True)

    writing, reading = channel_to(second.amqp), channel_to(third.amqp)
    bodies = [b"%d" % number for number in range(20)]
    for body in bodies:
        writing.basic_publish("", "work", body)
    read = _all(reading)

    for channel in (declaring, writing, reading):
        channel.connection.close()
    assert read == bodies


def test_nothing_confirmed_is_lost_when_the_owner_dies_under_load(cluster: LocalCluster) -> None:
    first, second, third = cluster.nodes.values()
    channel = channel_to(first.amqp)
    channel.queue_declare("work", durable=True)
    channel.connection.close()
    confirmed: list[bytes] = []
    number = 0
    for turn in range(2):
        channel = _serving([second.amqp, third.amqp])
        with contextlib.suppress(AMQPError):
            for _ in range(150):
                number += 1
                channel.basic_publish("", "work", b"%d" % number)
                confirmed.append(b"%d" % number)
                if turn == 0 and len(confirmed) == 60:
                    first.kill9()
        with contextlib.suppress(AMQPError):
            channel.connection.close()

    left = _drained([second.amqp, third.amqp])

    assert len(confirmed) >= 210
    assert set(confirmed) <= set(left)
    assert [body for body in left if body in set(confirmed)] == confirmed


def _serving(addresses: list[str]) -> BlockingChannel:
    """A channel to whichever node serves the queue by and by."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for address in addresses:
            try:
                channel = channel_to(address)
            except AMQPError:
                continue
            try:
                channel.queue_declare("work", durable=True, passive=True)
            except AMQPError:
                with contextlib.suppress(AMQPError):
                    channel.connection.close()
                continue
            return channel
        time.sleep(0.3)
    raise AssertionError("no node serves the queue")


def _drained(addresses: list[str]) -> list[bytes]:
    """All that is in the queue, from whichever node serves it by and by."""
    channel = _serving(addresses)
    found = _all(channel)
    channel.connection.close()
    return found


def _all(channel: BlockingChannel) -> list[bytes]:
    found: list[bytes] = []
    while True:
        method, _, body = channel.basic_get("work", auto_ack=True)
        if method is None:
            return found
        found.append(body)
