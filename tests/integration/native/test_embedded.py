"""A node inside the program, and the clients that programs without asyncio use."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Struct

from mainstem import connect, connect_blocking
from mainstem.broker.api.queues import DeliveryMode
from mainstem.broker.api.queues import QueueSettings as HouseSettings
from mainstem.client.consumer import Consumer, ConsumerSettings
from mainstem.client.native.typed_queue import TypedQueue
from mainstem.client.producer import Producer
from mainstem.client.queues import QueueSettings
from mainstem.client.values import TopicPartition
from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.node.embedded import Embedded, EmbeddedNode


class Order(Struct):
    number: int
    article: str


@pytest.fixture(scope="module")
def node() -> Iterator[EmbeddedNode]:
    with Embedded().queue("ready").topic("events", partitions=3).start() as node:
        yield node


def test_an_embedded_node_has_what_it_was_built_with(node: EmbeddedNode) -> None:
    with connect_blocking(node.native) as queues:
        queues.queue("ready").publish(b"x")
        assert queues.queue("ready").purge() == 1
    assert {"kafka", "native", "http", "amqp", "mqtt"} <= set(node.addresses)


def test_an_embedded_node_keeps_a_folder_that_it_was_given(tmp_path: Path) -> None:
    wish = Embedded().data_dir(tmp_path).without("http").queue("kept")
    with wish.start() as first, connect_blocking(first.native) as queues:
        queues.queue("kept").publish(b"still there")
    with wish.start() as second, connect_blocking(second.native) as queues:
        assert "http" not in second.addresses
        message = queues.queue("kept").get()
        assert message is not None
        assert message.value == b"still there"


def test_an_embedded_node_that_cannot_start_says_why(node: EmbeddedNode) -> None:
    taken = int(node.kafka.rpartition(":")[2])
    with pytest.raises(OSError, match="in use"):
        Embedded().port("kafka", taken).start()
    with pytest.raises(MainstemError) as unknown:
        Embedded().setting("kafka.prot", 1).start()
    assert unknown.value.code is ErrorCode.INVALID_CONFIG


def test_programs_without_asyncio_publish_and_consume(node: EmbeddedNode) -> None:
    with connect_blocking(node.native) as queues:
        queue = queues.declare("sync", QueueSettings(retry_ms=0))
        assert queue.publish_many(f"{n}" for n in range(100)) == 100
        seen = []
        for message in queue.consume(idle_ms=5_000):
            with message:
                seen.append(message.text)
            if len(seen) == 100:
                break
        assert seen == [str(n) for n in range(100)]
        queue.publish(b"bad", headers={"a": "b"}, priority=3)
        first = queue.get()
        assert first is not None
        with pytest.raises(ZeroDivisionError), first:
            raise ZeroDivisionError
        again = next(iter(queue.consume(idle_ms=5_000)))
        assert (again.value, again.attempt, again.headers) == (b"bad", 2, (("a", b"b"),))
        assert [message.text for message in queue.consume(idle_ms=300)] == ["bad"]
        assert queue.delete() == 1


def test_exchanges_without_asyncio(node: EmbeddedNode) -> None:
    with connect_blocking(node.native) as queues:
        exchange = queues.declare_exchange("sync-events", "fanout")
        queue = queues.declare("sync-bound")
        exchange.bind(queue)
        assert exchange.publish(b"all", key="any")
        assert queue.info().ready == 1
        exchange.unbind(queue)
        assert not exchange.publish(b"nobody")
        exchange.delete()
        assert "sync-bound" in {info.name for info in queues.list_queues()}


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
async def test_values_travel_with_their_type_and_others_are_dead_letters(
    node: EmbeddedNode, encoding: str
) -> None:
    async with connect(node.native) as queues:
        dead = await queues.declare(f"dead-{encoding}")
        settings = QueueSettings(dead_letter_exchange="", dead_letter_key=dead.name)
        queue = await queues.declare(f"typed-{encoding}", settings)
        orders = TypedQueue(queue, Order, "json" if encoding == "json" else "msgpack")
        await queue.publish(b"no order")
        await orders.publish(Order(1, "book"))
        await orders.publish_many([Order(2, "pen")])
        found = []
        async for message in orders.consume():
            with message:
                found.append(message.body)
            if len(found) == 2:
                break
        assert found == [Order(1, "book"), Order(2, "pen")]
        async with dead.consume() as letters:
            letter = await letters.next(5_000)
            assert letter.value == b"no order"
            assert dict(letter.headers)["x-first-death-reason"]


async def test_what_native_clients_publish_kafka_clients_read_and_back(node: EmbeddedNode) -> None:
    async with connect(node.native) as queues:
        exchange = await queues.declare_exchange("shared-log", "topic")
        queue = await queues.declare("shared-log-queue")
        await exchange.bind(queue, "#")
        await exchange.publish(b"\x00one", key="a.b", headers=[("h", b"\xff")], priority=2)
        async with Producer(node.kafka) as producer:
            await producer.send_and_wait("shared-log", b"two", key=b"c.d", headers=[("k", b"v")])
        settings = ConsumerSettings(reset="earliest")
        async with Consumer(node.kafka, settings=settings) as consumer:
            consumer.assign([TopicPartition("shared-log", 0)])
            records = []
            async for record in consumer:
                records.append(record)
                if len(records) == 2:
                    break
        assert [(r.key, r.value) for r in records] == [(b"a.b", b"\x00one"), (b"c.d", b"two")]
        assert dict(records[0].headers) == {"h": b"\xff", "priority": b"2"}
        async with queue.consume() as messages:
            first, second = [await messages.next(5_000) for _ in range(2)]
        assert (first.value, first.properties.priority) == (b"\x00one", 2)
        assert (second.key, second.value, second.headers) == ("c.d", b"two", (("k", b"v"),))
        found = await queues.topics.read("shared-log")
        assert [r.message.value for r in found.records] == [b"\x00one", b"two"]


async def test_fan_out_lets_every_subscriber_have_every_message() -> None:
    settings = HouseSettings(mode=DeliveryMode.FANOUT_WITH_ACK)
    with Embedded().queue("news", settings).start() as own:
        async with connect(own.native) as queues:
            queue = queues.queue("news")
            async with (
                queue.consume(subscriber="a") as first,
                queue.consume(subscriber="b") as second,
            ):
                await queue.publish(b"for all")
                assert (await first.next(5_000)).value == b"for all"
                assert (await second.next(5_000)).value == b"for all"
