"""What AMQP clients were promised holds across a restart and across kill -9."""

from typing import Any

import pika
import pytest
from confluent_kafka import Consumer, Producer
from pika.exceptions import ConnectionClosedByBroker
from tests.integration.amqp.conftest import dial, drained, hang_up

from mainstem.testing.local_node import LocalNode

PERSISTENT = pika.BasicProperties(delivery_mode=2, headers={"n": 1})


def filled(node: LocalNode, queue: str, count: int) -> Any:
    """A connection that has had so many messages confirmed."""
    connection = dial(node)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.exchange_declare("orders", "topic", durable=True)
    channel.queue_declare(queue, durable=True)
    channel.queue_bind(queue, "orders", "order.#")
    for number in range(count):
        where = ("orders", "order.new") if number % 2 else ("", queue)
        channel.basic_publish(*where, str(number).encode(), PERSISTENT, mandatory=True)
    return connection


@pytest.mark.parametrize("end", ["stop", "kill9"])
def test_confirmed_messages_outlive_the_node(own_amqp_node: LocalNode, end: str) -> None:
    node = own_amqp_node
    connection = filled(node, "kept", 20)
    getattr(node, end)()
    hang_up(connection)
    node.start()
    with dial(node) as again:
        found = drained(again.channel(), "kept", 20)
        assert sorted(int(body) for _, _, body in found) == list(range(20))
        by_name = [int(body) for method, _, body in found if method.exchange == ""]
        by_key = [int(body) for method, _, body in found if method.exchange == "orders"]
        assert (by_name, by_key) == (sorted(by_name), sorted(by_key))
        assert all(properties.headers == {"n": 1} for _, properties, _ in found)
        channel = again.channel()
        channel.confirm_delivery()
        channel.basic_publish("orders", "order.more", b"more", mandatory=True)
        assert [body for _, _, body in drained(channel, "kept", 1)] == [b"more"]


def test_what_was_acknowledged_never_comes_back_and_the_rest_does(
    own_amqp_node: LocalNode,
) -> None:
    node = own_amqp_node
    connection = filled(node, "work", 10)
    channel = connection.channel()
    tags = {}
    for _ in range(6):
        method, _, body = channel.basic_get("work")
        tags[int(body)] = method.delivery_tag
    for number in list(tags)[:4]:
        channel.basic_ack(tags.pop(number))
    # Acknowledgements are not answered: one that is behind them on the same channel is.
    channel.queue_declare("work", passive=True)
    channel.basic_publish("", "work", b"10", PERSISTENT)
    channel.queue_declare("work", passive=True)
    node.kill9()
    hang_up(connection)
    node.start()
    with dial(node) as again:
        found = {int(body): m for m, _, body in drained(again.channel(), "work", 7)}
        assert set(tags) <= set(found)
        assert all(found[number].redelivered for number in tags)
        assert again.channel().basic_get("work")[0] is None


def test_clients_are_told_that_the_node_stops(own_amqp_node: LocalNode) -> None:
    connection = dial(own_amqp_node)
    connection.channel()
    own_amqp_node.stop()
    with pytest.raises(ConnectionClosedByBroker) as caught:
        connection.process_data_events(5)
    assert caught.value.reply_code == 320


def test_kafka_reads_what_amqp_writes_and_the_other_way_round(own_amqp_node: LocalNode) -> None:
    node = own_amqp_node
    with dial(node) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare("orders", "topic", durable=True)
        channel.queue_declare("all", durable=True)
        channel.queue_bind("all", "orders", "#")
        properties = pika.BasicProperties(
            content_type="text/plain", message_id="m-1", headers={"shop": "eu", "n": 5}
        )
        channel.basic_publish("orders", "order.new", b"\x00from amqp", properties)
        consumer = Consumer(
            {
                "bootstrap.servers": node.kafka,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["orders"])
        record = consumer.poll(20)
        assert record is not None
        assert (record.key(), record.value()) == (b"order.new", b"\x00from amqp")
        headers = dict(record.headers() or {})
        assert headers["content-type"] == b"text/plain"
        assert headers["message-id"] == b"m-1"
        assert (headers["shop"], headers["n"]) == (b"eu", b"5")
        consumer.close()
        producer = Producer({"bootstrap.servers": node.kafka})
        sent: dict[str, str | bytes | None] = {"correlation-id": b"c-9", "shop": b"us"}
        producer.produce("orders", b"from kafka", b"order.old", headers=sent)
        assert producer.flush(20) == 0
        found = drained(channel, "all", 2)
        assert [body for _, _, body in found] == [b"\x00from amqp", b"from kafka"]
        method, properties, _ = found[1]
        assert (method.exchange, method.routing_key) == ("orders", "order.old")
        assert properties.correlation_id == "c-9"
        assert properties.headers == {"shop": "us"}
