"""What clients see of RabbitMQ: every claim holds for a node and for RabbitMQ beside it.

The half that runs RabbitMQ needs Debian's ``rabbitmq-server``, and is skipped where it is missing.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.integration.amqp.conftest import Server, dial, drained
from tests.integration.waiting import eventually

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
    eventually(lambda: not any(messages_in(channel, each) for each in (alone, first, second)))


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
    eventually(lambda: connection.process_data_events(0.1) or sum(map(len, got.values())) == 8)
    connection.process_data_events(0.3)
    assert [len(got[queue]) for queue in queues] == [3, 5]
