"""How consumers, channels and connections end: the same on a node and on RabbitMQ beside it."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from tests.integration.amqp.conftest import Server, dial
from tests.integration.amqp.raw import Raw
from tests.kit.waiting import wait_until

from mainstem.wire.amqp import basic_methods as basic
from mainstem.wire.amqp import connection_methods as connection
from mainstem.wire.amqp import entity_methods as entity
from mainstem.wire.amqp import frames
from mainstem.wire.amqp.method import Method

Name = Callable[[str], str]
MESSAGES = 20_000


@pytest.fixture
def raw(server: Server) -> Iterator[Raw]:
    """A connection with channel 1 open."""
    with Raw(server) as made:
        yield made.open()


def count(methods: list[Method]) -> int:
    return sum(isinstance(method, basic.BasicDeliver) for method in methods)


def test_nothing_is_delivered_after_the_answer_to_a_cancel(
    server: Server, raw: Raw, name: Name
) -> None:
    queue = name("queue")
    raw.say(entity.QueueDeclare(queue=queue), 1)
    raw.methods_until(entity.QueueDeclareOk)
    raw.send(b"".join(raw.publish("", queue, b"x") for _ in range(MESSAGES)))
    with dial(server) as other:
        waiting = other.channel()
        declare = partial(waiting.queue_declare, queue, passive=True)
        wait_until(lambda: declare().method.message_count == MESSAGES)
    got = 0
    for number in range(10):
        tag = f"c{number}"
        raw.say(basic.BasicConsume(queue=queue, consumer_tag=tag), 1)
        got += count(raw.methods_until(basic.BasicDeliver))
        # More is on its way when the cancel is read.
        raw.say(basic.BasicCancel(consumer_tag=tag), 1)
        got += count(raw.methods_until(basic.BasicCancelOk))
        raw.say(basic.BasicQos(prefetch_count=0), 1)
        raw.say(entity.QueueDeclare(queue=queue, passive=True), 1)
        *late, declared = raw.methods_until(entity.QueueDeclareOk)
        assert [type(method) for method in late] == [basic.BasicQosOk]
        # What was delivered is still the channel's.
        assert isinstance(declared, entity.QueueDeclareOk)
        assert declared.message_count == MESSAGES - got
        if got > MESSAGES // 2:
            break
    assert got, "nothing was delivered"
    raw.say(basic.BasicAck(delivery_tag=got, multiple=True), 1)
    raw.say(connection.ChannelClose(), 1)
    raw.methods_until(connection.ChannelCloseOk)
    with dial(server) as other:
        left = other.channel().queue_declare(queue, passive=True).method.message_count
        assert left == MESSAGES - got


@pytest.mark.parametrize(
    "mistake",
    [
        pytest.param(lambda raw: raw.publish("absent", "k"), id="publish"),
        pytest.param(
            lambda _: frames.method_frame(1, entity.QueueDeclare(queue="absent", passive=True)),
            id="declare",
        ),
    ],
)
def test_closes_of_a_channel_may_cross(raw: Raw, mistake: Callable[[Raw], bytes]) -> None:
    # The client closes its channel before it reads that the server did.
    raw.send(mistake(raw) + frames.method_frame(1, connection.ChannelClose()))
    close, _ = raw.methods_until(connection.ChannelCloseOk)
    assert isinstance(close, connection.ChannelClose)
    assert close.reply_code == 404
    raw.say(connection.ChannelCloseOk(), 1)
    raw.say(connection.ChannelOpen(), 2)
    raw.say(connection.ChannelOpen(), 1)
    raw.methods_until(connection.ChannelOpenOk)
    raw.methods_until(connection.ChannelOpenOk)


def test_a_client_that_goes_on_sending_still_reads_that_its_connection_is_closed(
    raw: Raw, name: Name
) -> None:
    more = b"".join(raw.publish("", name("nowhere"), b"x" * 1_000) for _ in range(2_000))
    raw.say(connection.ConnectionClose())
    raw.socket.sendall(more)
    assert isinstance(raw.frame().method, connection.ConnectionCloseOk)


def test_a_client_in_the_middle_of_publishing_reads_why_its_connection_is_closed(
    raw: Raw, name: Name
) -> None:
    wrong = frames.method_frame(1, connection.ChannelOpen())
    more = b"".join(raw.publish("", name("nowhere"), b"x" * 1_000) for _ in range(2_000))
    raw.socket.sendall(wrong + more)
    close = raw.frame().method
    assert isinstance(close, connection.ConnectionClose)
    assert close.reply_code == 504
    raw.say(connection.ConnectionCloseOk())
