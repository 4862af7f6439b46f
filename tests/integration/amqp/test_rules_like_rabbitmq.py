"""What is refused and in which order answers come: the same on a node and on RabbitMQ beside it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pika.exceptions import ChannelClosedByBroker
from tests.integration.amqp.conftest import Server, dial, drained
from tests.integration.amqp.raw import Raw

from mainstem.wire.amqp import basic_methods as basic
from mainstem.wire.amqp import connection_methods as methods
from mainstem.wire.amqp import entity_methods as entity
from mainstem.wire.amqp import frames
from mainstem.wire.amqp.method_codec import encode_method

Name = Callable[[str], str]
QUORUM = {"x-queue-type": "quorum"}


@pytest.fixture
def connection(server: Server) -> Iterator[Any]:
    """A connection of pika."""
    made = dial(server)
    yield made
    if made.is_open:
        made.close()


@pytest.fixture
def raw(server: Server) -> Iterator[Raw]:
    """A connection with channel 1 open that wants to know when its queues go."""
    with Raw(server) as made:
        yield made.open(capabilities={"consumer_cancel_notify": True})


def refusal(ask: Callable[[], Any]) -> tuple[int, str]:
    with pytest.raises(ChannelClosedByBroker) as caught:
        ask()
    return caught.value.reply_code, caught.value.reply_text


@pytest.mark.parametrize("is_exclusive", [True, False])
def test_a_queue_declared_with_another_exclusiveness_is_locked(
    connection: Any, name: Name, *, is_exclusive: bool
) -> None:
    queue = name("queue")
    channel = connection.channel()
    channel.queue_declare(queue, exclusive=is_exclusive)
    # Before any other difference is looked at.
    code, text = refusal(
        lambda: channel.queue_declare(queue, exclusive=not is_exclusive, auto_delete=True)
    )
    assert code == 405
    assert text.startswith(
        f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{queue}"
    )


def test_the_default_exchange_cannot_be_declared_passively_either(connection: Any) -> None:
    code, _ = refusal(lambda: connection.channel().exchange_declare("", passive=True))
    assert code == 403


def test_line_ends_are_taken_out_of_names(raw: Raw, connection: Any, name: Name) -> None:
    queue, exchange = name("queue"), name("exchange")
    raw.say(entity.QueueDeclare(queue=f"\r\n{queue}\n"), 1)
    [declared] = raw.methods_until(entity.QueueDeclareOk)
    assert isinstance(declared, entity.QueueDeclareOk)
    assert declared.queue == queue
    channel = connection.channel()
    channel.exchange_declare(f"{exchange}\r\n", "direct")
    channel.queue_bind(f"{queue}\n", f"\r{exchange}", "key")
    channel.confirm_delivery()
    channel.basic_publish(exchange, "key", b"x", mandatory=True)
    assert len(drained(channel, queue, 1)) == 1
    channel.exchange_delete(f"{exchange}\n")
    assert channel.queue_delete(f"{queue}\r").method.message_count == 0
    assert refusal(lambda: channel.queue_declare(queue, passive=True))[0] == 404


@pytest.mark.parametrize(
    ("heartbeat", "code"),
    [(b"\x08\x00\x01\x00\x00\x00\x00\xce", 505), (b"\x08\x00\x00\x00\x00\x00\x01x\xce", 501)],
)
def test_a_heartbeat_has_neither_channel_nor_payload(raw: Raw, heartbeat: bytes, code: int) -> None:
    raw.send(heartbeat)
    close = raw.methods_until(methods.ConnectionClose)[-1]
    assert isinstance(close, methods.ConnectionClose)
    assert close.reply_code == code


def test_what_was_published_before_confirms_is_returned_before_they_begin(
    raw: Raw, name: Name
) -> None:
    exchange = name("exchange")
    raw.say(entity.ExchangeDeclare(exchange=exchange, type="topic"), 1)
    raw.methods_until(entity.ExchangeDeclareOk)
    publish = encode_method(basic.BasicPublish(exchange=exchange, routing_key="k", mandatory=True))
    unwanted = frames.content_frames(1, publish, b"\0\0", b"x", 131_072)
    raw.send(unwanted + frames.method_frame(1, basic.ConfirmSelect()))
    found = raw.methods_until(basic.ConfirmSelectOk)
    assert [type(method) for method in found] == [basic.BasicReturn, basic.ConfirmSelectOk]


def test_a_consumer_is_told_that_its_queue_is_gone_after_the_answer_to_its_deletion(
    raw: Raw, name: Name
) -> None:
    queue = name("queue")
    raw.say(entity.QueueDeclare(queue=queue), 1)
    raw.say(basic.BasicConsume(queue=queue, consumer_tag="c"), 1)
    raw.methods_until(basic.BasicConsumeOk)
    raw.say(entity.QueueDelete(queue=queue), 1)
    found = raw.methods_until(basic.BasicCancel)
    assert [type(method) for method in found] == [entity.QueueDeleteOk, basic.BasicCancel]


@pytest.mark.parametrize(
    ("arguments", "counts"), [({}, [None, None]), (QUORUM, [None, 1])], ids=["classic", "quorum"]
)
def test_only_quorum_queues_count_deliveries(
    connection: Any, name: Name, arguments: dict[str, str], counts: list[int | None]
) -> None:
    queue = name("queue")
    channel = connection.channel()
    channel.queue_declare(queue, durable=True, arguments=arguments)
    channel.basic_publish("", queue, b"x")
    found = []
    for method, properties, _ in channel.consume(queue, inactivity_timeout=10):
        assert method is not None, "it did not come back"
        found.append((properties.headers or {}).get("x-delivery-count"))
        if len(found) == 2:
            break
        channel.basic_nack(method.delivery_tag, requeue=True)
    channel.cancel()
    assert found == counts


@pytest.mark.parametrize(
    "asked",
    [
        {"durable": False},
        {"exclusive": True},
        {"auto_delete": True},
        {"arguments": QUORUM | {"x-max-priority": 3}},
    ],
    ids=lambda asked: next(iter(asked)),
)
def test_a_quorum_queue_is_durable_shared_lasting_and_has_no_priorities(
    connection: Any, name: Name, asked: dict[str, Any]
) -> None:
    wish = {"durable": True, "arguments": QUORUM} | asked
    code, text = refusal(lambda: connection.channel().queue_declare(name("queue"), **wish))
    assert code == 406
    assert text.startswith("PRECONDITION_FAILED - invalid ")


@pytest.mark.parametrize(
    ("first", "second"),
    [(QUORUM, {}), (QUORUM, {"x-queue-type": "classic"}), ({}, QUORUM)],
)
def test_a_queue_keeps_its_type(
    connection: Any, name: Name, first: dict[str, str], second: dict[str, str]
) -> None:
    queue = name("queue")
    channel = connection.channel()
    channel.queue_declare(queue, durable=True, arguments=first)
    channel.queue_declare(queue, durable=True, arguments=first)
    code, text = refusal(lambda: channel.queue_declare(queue, durable=True, arguments=second))
    assert code == 406
    assert f"inequivalent arg 'x-queue-type' for queue '{queue}' in vhost '/'" in text


def test_a_queue_without_a_type_is_classic(connection: Any, name: Name) -> None:
    queue = name("queue")
    channel = connection.channel()
    channel.queue_declare(queue, durable=True)
    channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "classic"})
