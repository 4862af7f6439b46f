"""A node with queues is killed while AMQP clients publish and consume."""

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

from mainstem.testing.local_node import LocalNode

ROUNDS = 4
MESSAGES_PER_ROUND = 120


def channel_to(node: LocalNode) -> BlockingChannel:
    host, _, port = node.amqp.rpartition(":")
    parameters = pika.ConnectionParameters(host, int(port), heartbeat=0)
    channel = pika.BlockingConnection(parameters).channel()
    channel.confirm_delivery()
    return channel


def kill(node: LocalNode, channel: BlockingChannel) -> BlockingChannel:
    """Kill the node and come back; a channel to the node that follows."""
    node.kill9()
    with contextlib.suppress(AMQPError):
        channel.connection.process_data_events()
    with contextlib.suppress(AMQPError):
        channel.connection.close()
    node.start()
    return channel_to(node)


def drain(channel: BlockingChannel, queue: str) -> list[bytes]:
    found: list[bytes] = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return found
        found.append(body)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[LocalNode]:
    with LocalNode(tmp_path, arguments=("--set", "amqp.enabled=true")) as node:
        yield node


def test_confirmed_messages_survive_kills_and_acknowledged_ones_stay_gone(node: LocalNode) -> None:
    chance = random.Random(7)
    channel = channel_to(node)
    channel.exchange_declare("orders", "topic", durable=True)
    channel.queue_declare("work", durable=True)
    channel.queue_bind("work", "orders", "eu.#")
    confirmed: list[bytes] = []
    settled: set[bytes] = set()
    for turn in range(ROUNDS):
        for number in range(MESSAGES_PER_ROUND):
            body = b"%d-%d" % (turn, number)
            exchange, key = ("orders", "eu.x") if number % 2 else ("", "work")
            channel.basic_publish(exchange, key, body)
            confirmed.append(body)
            if chance.random() < 0.4:
                method, _, got = channel.basic_get("work")
                assert method is not None
                channel.basic_ack(method.delivery_tag)
                settled.add(got)
        # An acknowledgement has no answer: another request behind it shows that it was read.
        channel.queue_declare("work", durable=True, passive=True)
        time.sleep(0.2)
        channel = kill(node, channel)

    left = drain(channel, "work")
    channel.connection.close()

    assert sorted(left) == sorted(set(confirmed) - settled)


def test_unacknowledged_messages_come_back_in_order_after_a_kill(node: LocalNode) -> None:
    channel = channel_to(node)
    channel.queue_declare("work", durable=True)
    bodies = [b"%d" % number for number in range(50)]
    for body in bodies:
        channel.basic_publish("", "work", body)
    held = [channel.basic_get("work")[2] for _ in range(20)]

    channel = kill(node, channel)
    method, _, first = channel.basic_get("work", auto_ack=True)

    assert held == bodies[:20]
    assert method is not None
    assert method.redelivered
    assert [first, *drain(channel, "work")] == bodies
    channel.connection.close()
