"""What clients see of RabbitMQ: every claim holds for a node and for RabbitMQ beside it.

The half that runs RabbitMQ needs Debian's ``rabbitmq-server``, and is skipped where it is missing.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from pika.exceptions import UnroutableError
from tests.integration.amqp.conftest import Server, dial, drained
from tests.integration.amqp.raw import Raw
from tests.kit.waiting import wait_until

from mainstem.wire.amqp import frames
from mainstem.wire.amqp.basic_methods import BasicGet, BasicPublish
from mainstem.wire.amqp.method_codec import encode_method

Name = Callable[[str], str]
TTL_MS = 50


@pytest.fixture
def connection(server: Server) -> Iterator[Any]:
    """A connection of pika."""
    made = dial(server)
    yield made
    if made.is_open:
        made.close()


@pytest.fixture
def channel(connection: Any) -> Any:
    """A channel with confirms."""
    made = connection.channel()
    made.confirm_delivery()
    return made


def messages_in(channel: Any, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def to_queue(queue: str) -> dict[str, Any]:
    """Arguments that send dead letters to a queue by its name."""
    return {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}


# Dead letters


def test_a_consumer_may_send_a_message_through_a_delay_queue_again_and_again(
    channel: Any, name: Name
) -> None:
    work, delay = name("work"), name("delay")
    channel.queue_declare(work)
    channel.queue_declare(delay, arguments=to_queue(work) | {"x-message-ttl": TTL_MS})
    properties = None
    counts = []
    for _ in range(4):
        channel.basic_publish("", delay, b"try", properties)
        [(_, properties, body)] = drained(channel, work, 1)
        assert body == b"try"
        counts.append([(each["queue"], each["count"]) for each in properties.headers["x-death"]])
    assert counts == [[(delay, count)] for count in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("limit", "reason"), [({"x-message-ttl": TTL_MS}, "expired"), ({"x-max-length": 0}, "maxlen")]
)
def test_a_dead_letter_may_be_published_again_where_it_died(
    channel: Any, name: Name, limit: dict[str, int], reason: str
) -> None:
    dead, queue = name("dead"), name("queue")
    channel.queue_declare(dead)
    channel.queue_declare(queue, arguments=to_queue(dead) | limit)
    properties = None
    for count in (1, 2, 3):
        channel.basic_publish("", queue, b"again", properties)
        [(_, properties, _)] = drained(channel, dead, 1)
        [death] = properties.headers["x-death"]
        assert (death["queue"], death["reason"], death["count"]) == (queue, reason, count)


def test_a_message_that_expires_round_a_cycle_is_dropped(channel: Any, name: Name) -> None:
    alone, first, second = name("alone"), name("first"), name("second")
    for queue, following in ((alone, alone), (first, second), (second, first)):
        channel.queue_declare(queue, arguments=to_queue(following) | {"x-message-ttl": TTL_MS})
    channel.basic_publish("", alone, b"x")
    channel.basic_publish("", first, b"x")
    wait_until(lambda: not any(messages_in(channel, each) for each in (alone, first, second)))


def test_a_cycle_costs_only_the_queue_that_closes_it(channel: Any, name: Name) -> None:
    exchange, queue, beside = name("exchange"), name("queue"), name("beside")
    channel.exchange_declare(exchange, "fanout")
    arguments = {"x-dead-letter-exchange": exchange, "x-message-ttl": TTL_MS}
    channel.queue_declare(queue, arguments=arguments)
    channel.queue_declare(beside)
    for each in (queue, beside):
        channel.queue_bind(each, exchange)
    channel.basic_publish("", queue, b"x")
    [(_, properties, _)] = drained(channel, beside, 1)
    assert [each["queue"] for each in properties.headers["x-death"]] == [queue]
    assert (messages_in(channel, queue), messages_in(channel, beside)) == (0, 0)


def test_a_message_that_is_rejected_goes_round_as_often_as_it_is_rejected(
    channel: Any, name: Name
) -> None:
    work, delay = name("work"), name("delay")
    channel.queue_declare(work, arguments=to_queue(delay))
    channel.queue_declare(delay, arguments=to_queue(work) | {"x-message-ttl": TTL_MS})
    channel.basic_publish("", work, b"x")
    deaths: list[Any] = []
    for method, properties, _ in channel.consume(work, inactivity_timeout=10):
        assert method is not None, f"gone after {len(deaths)} rounds"
        deaths = (properties.headers or {}).get("x-death", [])
        if sum(each["count"] for each in deaths) == 6:
            break
        channel.basic_reject(method.delivery_tag, requeue=False)
    assert {(each["queue"], each["reason"], each["count"]) for each in deaths} == {
        (work, "rejected", 3),
        (delay, "expired", 3),
    }
    channel.cancel()


@pytest.mark.parametrize("reason", ["expired", "rejected"])
def test_a_dead_letter_loses_its_expiration_and_tells_it(
    channel: Any, name: Name, reason: str
) -> None:
    dead, queue = name("dead"), name("queue")
    channel.queue_declare(dead)
    channel.queue_declare(queue, arguments=to_queue(dead))
    expiration = "40" if reason == "expired" else "600000"
    channel.basic_publish("", queue, b"x", pika.BasicProperties(expiration=expiration))
    if reason == "rejected":
        method, _, _ = channel.basic_get(queue)
        channel.basic_reject(method.delivery_tag, requeue=False)
    [(_, properties, _)] = drained(channel, dead, 1)
    [death] = properties.headers["x-death"]
    assert (death["reason"], death["original-expiration"]) == (reason, expiration)
    assert properties.expiration is None


def test_numbers_of_dead_letters_have_the_types_that_clients_cast_them_to(
    server: Server, channel: Any, name: Name
) -> None:
    dead, queue = name("dead"), name("queue")
    channel.queue_declare(dead)
    channel.queue_declare(queue, arguments=to_queue(dead) | {"x-message-ttl": 0})
    # Headers that a client wrote keep their types on the way.
    mine = b"\x01bs\x00\x07" + b"\x01ll" + (7).to_bytes(8) + b"\x01SS\x00\x00\x00\x01t"
    with Raw(server).open() as raw:
        method = encode_method(BasicPublish(routing_key=queue))
        properties = b"\x20\x00" + len(mine).to_bytes(4) + mine
        raw.send(frames.content_frames(1, method, properties, b"x", 131_072))
        wait_until(lambda: messages_in(channel, dead) == 1)
        raw.say(BasicGet(queue=dead), 1)
        received = raw.content()
    assert all(field in received for field in (b"\x01bs\x00\x07", b"\x01ll" + (7).to_bytes(8)))
    assert b"\x05countl" + (1).to_bytes(8) in received


# Routing


def test_a_headers_exchange_compares_headers_and_never_properties(channel: Any, name: Name) -> None:
    exchange, queue = name("exchange"), name("queue")
    channel.exchange_declare(exchange, "headers")
    channel.queue_declare(queue)
    asked = ("type", "priority", "message-id", "content-type", "timestamp", "app-id", "expires-at")
    for header in asked:
        channel.queue_bind(queue, exchange, "", {header: "5"})
    properties = {"type": "5", "message_id": "5", "content_type": "5", "app_id": "5"}
    numbers = {"priority": 5, "timestamp": 5}
    unwanted = pika.BasicProperties(**properties, **numbers, headers={"other": "5"})
    with pytest.raises(UnroutableError):
        channel.basic_publish(exchange, "", b"no", unwanted, mandatory=True)
    for header in asked:
        wanted = pika.BasicProperties(**numbers, type="6", headers={header: "5"})
        channel.basic_publish(exchange, "", header.encode(), wanted, mandatory=True)
    found = drained(channel, queue, len(asked))
    assert [(body, properties.headers) for _, properties, body in found] == [
        (header.encode(), {header: "5"}) for header in asked
    ]


# Prefetch


def test_a_prefetch_of_a_channel_is_for_consumers_that_begin_later(
    connection: Any, name: Name
) -> None:
    queues = [name("queue") for _ in range(2)]
    channel = connection.channel()
    got: dict[str, list[int]] = {queue: [] for queue in queues}
    for queue, prefetch in zip(queues, (3, 5), strict=True):
        channel.queue_declare(queue)
        for _ in range(10):
            channel.basic_publish("", queue, b"x")
        channel.basic_qos(prefetch_count=prefetch)
        channel.basic_consume(
            queue, lambda _c, method, _p, _b, to=queue: got[to].append(method.delivery_tag)
        )
    wait_until(lambda: connection.process_data_events(0.1) or sum(map(len, got.values())) == 8)
    connection.process_data_events(0.3)
    assert [len(got[queue]) for queue in queues] == [3, 5]


def test_a_prefetch_of_the_whole_channel_serves_all_its_queues(connection: Any, name: Name) -> None:
    queues = [name("queue") for _ in range(2)]
    channel = connection.channel()
    channel.confirm_delivery()
    got: list[str] = []

    def take(channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
        got.append(method.routing_key)
        channel.basic_ack(method.delivery_tag)

    channel.basic_qos(prefetch_count=10, global_qos=True)
    for queue in queues:
        channel.queue_declare(queue)
        for _ in range(60):
            channel.basic_publish("", queue, b"x")
    for queue in queues:
        channel.basic_consume(queue, take)
    wait_until(lambda: connection.process_data_events(0.1) or len(got) >= 60)
    # Neither waits until the other is empty.
    assert min(got[:60].count(queue) for queue in queues) >= 5


# Expiration


def test_a_message_that_expires_at_once_reaches_a_consumer_that_waits(
    connection: Any, channel: Any, name: Name
) -> None:
    queue = name("queue")
    channel.queue_declare(queue)
    at_once = pika.BasicProperties(expiration="0")
    channel.basic_publish("", queue, b"nobody waits", at_once)
    wait_until(lambda: messages_in(channel, queue) == 0)
    got: list[bytes] = []
    channel.basic_consume(queue, lambda _c, _m, _p, body: got.append(body), auto_ack=True)
    for number in range(20):
        channel.basic_publish("", queue, b"%d" % number, at_once)
    wait_until(lambda: connection.process_data_events(0.1) or len(got) == 20)
    assert got == [b"%d" % number for number in range(20)]


def test_a_passive_declaration_is_a_use_of_a_queue_that_expires(
    connection: Any, channel: Any, name: Name
) -> None:
    queue = name("queue")
    channel.queue_declare(queue, arguments={"x-expires": 2_000})
    until = time.monotonic() + 3.5
    while time.monotonic() < until:
        messages_in(channel, queue)
        connection.sleep(0.3)
    messages_in(channel, queue)
