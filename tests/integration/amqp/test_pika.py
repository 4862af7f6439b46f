"""What users of RabbitMQ do every day, through pika, on a real node."""

import time
from collections.abc import Callable
from typing import Any

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker, NackError, UnroutableError
from tests.integration.amqp.conftest import WITH_AMQP, dial, drained
from tests.kit.waiting import wait_until

from mainstem.model.limits import MESSAGE_BYTES_MAX
from mainstem.testing.local_node import LocalNode

Name = Callable[[str], str]


def test_a_confirmed_message_is_delivered_with_all_its_properties(channel: Any, name: Name) -> None:
    queue = name("queue")
    channel.queue_declare(queue, durable=True)
    sent = pika.BasicProperties(
        content_type="application/json",
        content_encoding="utf-8",
        headers={
            "text": "ä",
            "number": 7,
            "big": 2**40,
            "flag": True,
            "list": [1, "a"],
            "no": None,
        },
        delivery_mode=2,
        priority=3,
        correlation_id="c-1",
        reply_to="there",
        expiration="600000",
        message_id="m-1",
        timestamp=1_700_000_000,
        type="greeting",
        user_id="guest",
        app_id="tests",
    )
    channel.basic_publish("", queue, b'{"a": 1}', sent, mandatory=True)
    [(method, properties, body)] = drained(channel, queue, 1)
    assert body == b'{"a": 1}'
    assert properties == sent
    assert (method.exchange, method.routing_key, method.redelivered) == ("", queue, False)


def test_bodies_of_any_size_arrive_whole_and_in_order(channel: Any, name: Name) -> None:
    queue = name("queue")
    channel.queue_declare(queue, durable=True)
    bodies = [bytes([at % 251]) * size for at, size in enumerate((0, 1, 131_064, 131_065, 900_000))]
    for body in bodies:
        channel.basic_publish("", queue, body)
    assert [body for _, _, body in drained(channel, queue, len(bodies))] == bodies


def test_a_mandatory_message_that_nobody_gets_is_returned(channel: Any, name: Name) -> None:
    with pytest.raises(UnroutableError) as caught:
        channel.basic_publish("", name("nowhere"), b"lost", mandatory=True)
    [returned] = caught.value.messages
    assert returned.body == b"lost"
    assert returned.method.reply_code == 312


@pytest.mark.parametrize(
    ("kind", "binding", "key", "arrives"),
    [
        ("direct", "a", "a", True),
        ("direct", "a", "b", False),
        ("fanout", "", "anything", True),
        ("topic", "orders.*.eu", "orders.new.eu", True),
        ("topic", "orders.#", "orders", True),
        ("topic", "orders.*", "orders.new.eu", False),
    ],
)
def test_exchanges_route_by_their_rule(
    channel: Any, name: Name, kind: str, binding: str, key: str, *, arrives: bool
) -> None:
    exchange, queue = name("exchange"), name("queue")
    channel.exchange_declare(exchange, kind, durable=True)
    channel.queue_declare(queue)
    channel.queue_bind(queue, exchange, binding)
    if arrives:
        channel.basic_publish(exchange, key, b"x", mandatory=True)
        [(method, _, _)] = drained(channel, queue, 1)
        assert (method.exchange, method.routing_key) == (exchange, key)
    else:
        with pytest.raises(UnroutableError):
            channel.basic_publish(exchange, key, b"x", mandatory=True)


def test_a_headers_exchange_compares_headers(channel: Any, name: Name) -> None:
    exchange, every, some = name("exchange"), name("all"), name("any")
    channel.exchange_declare(exchange, "headers")
    for queue, rule in ((every, "all"), (some, "any")):
        channel.queue_declare(queue)
        channel.queue_bind(queue, exchange, "", {"x-match": rule, "kind": "a", "size": 5})
    for headers in ({"kind": "a", "size": 5}, {"kind": "a", "size": 6}, {"kind": "b"}):
        channel.basic_publish(exchange, "", str(headers), pika.BasicProperties(headers=headers))
    assert len(drained(channel, every, 1)) == 1
    assert channel.basic_get(every)[0] is None
    assert len(drained(channel, some, 2)) == 2
    assert channel.basic_get(some)[0] is None


def test_exchanges_lead_to_exchanges_and_to_alternates(channel: Any, name: Name) -> None:
    first, second, other = name("first"), name("second"), name("other")
    queue, spare = name("queue"), name("spare")
    channel.exchange_declare(other, "fanout")
    channel.exchange_declare(first, "direct", arguments={"alternate-exchange": other})
    channel.exchange_declare(second, "fanout")
    channel.queue_declare(queue)
    channel.queue_declare(spare)
    channel.exchange_bind(second, first, "yes")
    channel.queue_bind(queue, second)
    channel.queue_bind(spare, other)
    channel.basic_publish(first, "yes", b"1", mandatory=True)
    channel.basic_publish(first, "no", b"2", mandatory=True)
    assert [body for _, _, body in drained(channel, queue, 1)] == [b"1"]
    assert [body for _, _, body in drained(channel, spare, 1)] == [b"2"]
    channel.exchange_unbind(second, first, "yes")
    channel.basic_publish(first, "yes", b"3", mandatory=True)
    assert [body for _, _, body in drained(channel, spare, 1)] == [b"3"]


def test_copies_go_where_cc_and_bcc_say(channel: Any, name: Name) -> None:
    queues = [name("queue") for _ in range(3)]
    for queue in queues:
        channel.queue_declare(queue)
    headers = {"CC": [queues[1]], "BCC": [queues[2]], "kept": 1}
    channel.basic_publish("", queues[0], b"x", pika.BasicProperties(headers=headers))
    for queue in queues:
        [(_, properties, _)] = drained(channel, queue, 1)
        assert properties.headers == {"CC": [queues[1]], "kept": 1}


def test_a_returned_message_keeps_its_place_and_is_marked(channel: Any, name: Name) -> None:
    queue = name("queue")
    channel.queue_declare(queue, durable=True)
    for body in (b"1", b"2", b"3"):
        channel.basic_publish("", queue, body)
    first, _, _ = channel.basic_get(queue)
    second, _, _ = channel.basic_get(queue)
    channel.basic_nack(first.delivery_tag, requeue=True)
    channel.basic_reject(second.delivery_tag, requeue=True)
    found = drained(channel, queue, 3)
    assert [(body, method.redelivered) for method, _, body in found] == [
        (b"1", True),
        (b"2", True),
        (b"3", False),
    ]


def test_acknowledging_several_at_once_settles_them(channel: Any, name: Name) -> None:
    queue = name("queue")
    channel.queue_declare(queue)
    for number in range(5):
        channel.basic_publish("", queue, str(number))
    tags = [channel.basic_get(queue)[0].delivery_tag for _ in range(4)]
    channel.basic_ack(tags[2], multiple=True)
    channel.basic_nack(0, multiple=True, requeue=True)
    assert [body for _, _, body in drained(channel, queue, 2)] == [b"3", b"4"]


def test_an_unknown_delivery_tag_ends_the_channel(channel: Any) -> None:
    channel.basic_ack(99)
    with pytest.raises(ChannelClosedByBroker) as caught:
        channel.queue_declare("", exclusive=True)
    assert caught.value.reply_code == 406
    assert caught.value.reply_text == "PRECONDITION_FAILED - unknown delivery tag 99"


def test_dead_letters_say_where_and_why_they_died(channel: Any, name: Name) -> None:
    grave, queue, buried = name("grave"), name("queue"), name("buried")
    channel.exchange_declare(grave, "fanout")
    channel.queue_declare(buried)
    channel.queue_bind(buried, grave)
    arguments = {"x-dead-letter-exchange": grave, "x-max-length": 2}
    channel.queue_declare(queue, arguments=arguments)
    channel.basic_publish("", queue, b"rejected", pika.BasicProperties(headers={"mine": 1}))
    method, _, _ = channel.basic_get(queue)
    channel.basic_reject(method.delivery_tag, requeue=False)
    [(method, properties, body)] = drained(channel, buried, 1)
    assert body == b"rejected"
    assert method.exchange == grave
    [death] = properties.headers["x-death"]
    assert (death["queue"], death["reason"], death["count"]) == (queue, "rejected", 1)
    assert death["routing-keys"] == [queue]
    assert properties.headers["mine"] == 1
    assert properties.headers["x-first-death-queue"] == queue
    channel.basic_publish("", queue, b"old", pika.BasicProperties(expiration="50"))
    [(_, properties, body)] = drained(channel, buried, 1)
    assert (body, properties.headers["x-death"][0]["reason"]) == (b"old", "expired")
    assert properties.expiration is None
    for number in range(3):
        channel.basic_publish("", queue, str(number))
    [(_, properties, body)] = drained(channel, buried, 1)
    assert (body, properties.headers["x-death"][0]["reason"]) == (b"0", "maxlen")


def test_messages_expire_by_the_rule_of_their_queue(channel: Any, name: Name) -> None:
    queue = name("queue")
    channel.queue_declare(queue, arguments={"x-message-ttl": 100})
    channel.basic_publish("", queue, b"soon gone")
    declared = channel.queue_declare(queue, passive=True)
    assert declared.method.message_count == 1
    wait_until(lambda: channel.queue_declare(queue, passive=True).method.message_count == 0)


def test_a_queue_that_refuses_says_so(channel: Any, name: Name) -> None:
    queue = name("queue")
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    channel.queue_declare(queue, arguments=arguments)
    channel.basic_publish("", queue, b"1")
    with pytest.raises(NackError):
        channel.basic_publish("", queue, b"2")
    assert [body for _, _, body in drained(channel, queue, 1)] == [b"1"]


def test_urgent_messages_come_first(channel: Any, name: Name) -> None:
    queue = name("queue")
    channel.queue_declare(queue, arguments={"x-max-priority": 5})
    for priority in (1, 5, 3, 9):
        channel.basic_publish("", queue, str(priority), pika.BasicProperties(priority=priority))
    assert [body for _, _, body in drained(channel, queue, 4)] == [b"5", b"9", b"3", b"1"]


def test_a_prefetch_bounds_what_is_unsettled(connection: Any, name: Name) -> None:
    queue = name("queue")
    channel = connection.channel()
    channel.queue_declare(queue)
    for number in range(10):
        channel.basic_publish("", queue, str(number))
    got: list[int] = []
    channel.basic_qos(prefetch_count=3)
    channel.basic_consume(queue, lambda _c, method, _p, _b: got.append(method.delivery_tag))
    connection.process_data_events(0.5)
    connection.process_data_events(0.2)
    assert len(got) == 3
    channel.basic_ack(got[1], multiple=True)
    connection.process_data_events(0.5)
    connection.process_data_events(0.2)
    assert len(got) == 5


def test_one_prefetch_for_the_whole_channel(connection: Any, name: Name) -> None:
    channel = connection.channel()
    channel.basic_qos(prefetch_count=4, global_qos=True)
    got: list[int] = []
    for queue in (name("queue"), name("queue")):
        channel.queue_declare(queue)
        for number in range(5):
            channel.basic_publish("", queue, str(number))
        channel.basic_consume(queue, lambda _c, method, _p, _b: got.append(method.delivery_tag))
    for _ in range(4):
        connection.process_data_events(0.2)
    assert len(got) == 4


def test_deliveries_need_no_acknowledgement_where_none_is_asked(
    connection: Any, name: Name
) -> None:
    queue = name("queue")
    channel = connection.channel()
    channel.queue_declare(queue)
    for number in range(2_500):
        channel.basic_publish("", queue, str(number))
    got: list[bytes] = []
    channel.basic_consume(queue, lambda _c, _m, _p, body: got.append(body), auto_ack=True)
    wait_until(lambda: connection.process_data_events(0.1) or len(got) == 2_500)
    assert got == [str(number).encode() for number in range(2_500)]
    assert channel.queue_declare(queue, passive=True).method.message_count == 0


def test_declarations_are_compared(connection: Any, name: Name) -> None:
    queue, exchange = name("queue"), name("exchange")
    channel = connection.channel()
    channel.queue_declare(queue, durable=True)
    with pytest.raises(ChannelClosedByBroker) as caught:
        channel.queue_declare(queue, durable=False)
    assert caught.value.reply_code == 406
    assert caught.value.reply_text.startswith(
        f"PRECONDITION_FAILED - inequivalent arg 'durable' for queue '{queue}' in vhost '/': "
    )
    channel = connection.channel()
    channel.exchange_declare(exchange, "topic")
    with pytest.raises(ChannelClosedByBroker) as caught:
        channel.exchange_declare(exchange, "direct")
    assert f"inequivalent arg 'type' for exchange '{exchange}'" in caught.value.reply_text


@pytest.mark.parametrize(
    ("ask", "code", "text"),
    [
        (lambda c: c.queue_declare("absent", passive=True), 404, "no queue 'absent' in vhost '/'"),
        (lambda c: c.exchange_declare("absent", passive=True), 404, "no exchange 'absent' in"),
        (lambda c: c.basic_consume("absent", print), 404, "no queue 'absent' in vhost '/'"),
        (lambda c: c.queue_bind("absent", "amq.topic"), 404, "no queue 'absent' in vhost '/'"),
        (lambda c: c.queue_declare("amq.mine"), 403, "contains reserved prefix 'amq.*'"),
        (lambda c: c.exchange_declare("amq.mine"), 403, ""),
        (lambda c: c.exchange_delete("amq.topic"), 403, ""),
        (lambda c: c.queue_declare("q-x", arguments={"x-expires": 0}), 406, "invalid arg 'x-expi"),
    ],
)
def test_refusals_have_the_numbers_and_words_that_clients_know(
    connection: Any, ask: Callable[[Any], Any], code: int, text: str
) -> None:
    channel = connection.channel()
    with pytest.raises(ChannelClosedByBroker) as caught:
        ask(channel)
    assert caught.value.reply_code == code
    assert text in caught.value.reply_text
    assert connection.channel().is_open


def test_publishing_to_an_absent_exchange_ends_the_channel(connection: Any) -> None:
    channel = connection.channel()
    channel.basic_publish("absent", "k", b"x")
    with pytest.raises(ChannelClosedByBroker) as caught:
        channel.queue_declare("", exclusive=True)
    assert caught.value.reply_text == "NOT_FOUND - no exchange 'absent' in vhost '/'"


def test_exclusive_queues_belong_to_their_connection(
    amqp_node: LocalNode, connection: Any, name: Name
) -> None:
    queue = name("queue")
    connection.channel().queue_declare(queue, exclusive=True)
    with dial(amqp_node) as other:
        with pytest.raises(ChannelClosedByBroker) as caught:
            other.channel().queue_declare(queue, passive=True)
        assert caught.value.reply_code == 405
        connection.close()

        def is_gone() -> bool:
            try:
                other.channel().queue_declare(queue, passive=True)
            except ChannelClosedByBroker as error:
                return bool(error.reply_code == 404)
            return False

        wait_until(is_gone)


def test_a_queue_of_no_name_gets_one_and_goes_with_its_last_consumer(
    connection: Any, channel: Any
) -> None:
    queue = channel.queue_declare("", auto_delete=True).method.queue
    assert queue.startswith("amq.gen-")
    tag = channel.basic_consume(queue, print)
    channel.basic_cancel(tag)
    with pytest.raises(ChannelClosedByBroker) as caught:
        channel.queue_declare(queue, passive=True)
    assert caught.value.reply_code == 404


def test_a_consumer_is_told_that_its_queue_is_gone(connection: Any, name: Name) -> None:
    queue = name("queue")
    channel = connection.channel()
    channel.queue_declare(queue)
    cancelled: list[Any] = []
    channel.add_on_cancel_callback(cancelled.append)
    channel.basic_consume(queue, print)
    connection.channel().queue_delete(queue)
    wait_until(lambda: connection.process_data_events(0.1) or cancelled)


def test_only_one_consumer_is_served_where_that_was_asked_for(connection: Any, name: Name) -> None:
    queue = name("queue")
    channel = connection.channel()
    channel.queue_declare(queue, arguments={"x-single-active-consumer": True})
    got: list[str] = []
    first = channel.basic_consume(
        queue, lambda _c, method, _p, _b: got.append(method.consumer_tag), auto_ack=True
    )
    second = channel.basic_consume(
        queue, lambda _c, method, _p, _b: got.append(method.consumer_tag), auto_ack=True
    )
    for _ in range(4):
        channel.basic_publish("", queue, b"x")
    wait_until(lambda: connection.process_data_events(0.1) or len(got) == 4)
    assert set(got) == {first}
    channel.basic_cancel(first)
    channel.basic_publish("", queue, b"x")
    wait_until(lambda: connection.process_data_events(0.1) or len(got) == 5)
    assert got[-1] == second


def test_an_exclusive_consumer_is_alone(connection: Any, name: Name) -> None:
    queue = name("queue")
    channel = connection.channel()
    channel.queue_declare(queue)
    channel.basic_consume(queue, print, exclusive=True)
    with pytest.raises(ChannelClosedByBroker) as caught:
        connection.channel().basic_consume(queue, print)
    assert caught.value.reply_code == 403
    assert "in exclusive use" in caught.value.reply_text


def test_a_transaction_counts_as_a_whole(connection: Any, name: Name) -> None:
    queue = name("queue")
    channel, other = connection.channel(), connection.channel()
    channel.queue_declare(queue)
    channel.tx_select()
    channel.basic_publish("", queue, b"forgotten")
    channel.tx_rollback()
    channel.basic_publish("", queue, b"kept")
    assert other.basic_get(queue)[0] is None
    channel.tx_commit()
    method, _, body = channel.basic_get(queue)
    assert body == b"kept"
    channel.basic_ack(method.delivery_tag)
    channel.tx_rollback()
    channel.basic_ack(method.delivery_tag)
    channel.tx_commit()
    channel.close()
    assert other.basic_get(queue)[0] is None


def test_recover_brings_back_what_is_unsettled(connection: Any, name: Name) -> None:
    queue = name("queue")
    channel = connection.channel()
    channel.queue_declare(queue)
    channel.basic_publish("", queue, b"1")
    channel.basic_get(queue)
    channel.basic_recover(requeue=True)
    [(method, _, body)] = drained(channel, queue, 1)
    assert (body, method.redelivered) == (b"1", True)


def test_purging_and_deleting_say_how_many(connection: Any, name: Name) -> None:
    queue = name("queue")
    channel = connection.channel()
    channel.queue_declare(queue)
    for _ in range(3):
        channel.basic_publish("", queue, b"x")
    assert channel.queue_purge(queue).method.message_count == 3
    channel.basic_publish("", queue, b"x")
    with pytest.raises(ChannelClosedByBroker) as caught:
        channel.queue_delete(queue, if_empty=True)
    assert caught.value.reply_code == 406
    channel = connection.channel()
    assert channel.queue_delete(queue).method.message_count == 1
    assert channel.queue_delete(queue).method.message_count == 0


def test_answers_come_straight_to_the_channel_that_asked(connection: Any, name: Name) -> None:
    queue = name("requests")
    asking, serving = connection.channel(), connection.channel()
    serving.queue_declare(queue)
    answers: list[tuple[str, bytes]] = []
    asking.basic_consume(
        "amq.rabbitmq.reply-to",
        lambda _c, _m, properties, body: answers.append((properties.correlation_id, body)),
        auto_ack=True,
    )
    request = pika.BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id="7")
    asking.basic_publish("", queue, b"2 + 2", request)
    [(_, properties, _)] = drained(serving, queue, 1)
    assert properties.reply_to.startswith("amq.rabbitmq.reply-to.")
    reply = pika.BasicProperties(correlation_id=properties.correlation_id)
    serving.basic_publish("", properties.reply_to, b"4", reply)
    wait_until(lambda: connection.process_data_events(0.1) or answers)
    assert answers == [("7", b"4")]


def test_another_virtual_host_has_queues_of_its_own(amqp_node: LocalNode, name: Name) -> None:
    queue = name("queue")
    with dial(amqp_node, virtual_host="team") as there, dial(amqp_node) as here:
        there.channel().queue_declare(queue)
        there.channel().basic_publish("", queue, b"there")
        with pytest.raises(ChannelClosedByBroker):
            here.channel().queue_declare(queue, passive=True)
        assert [body for _, _, body in drained(there.channel(), queue, 1)] == [b"there"]


def test_a_delayed_message_comes_when_it_is_due(channel: Any, name: Name) -> None:
    exchange, queue = name("exchange"), name("queue")
    channel.exchange_declare(exchange, "x-delayed-message", arguments={"x-delayed-type": "direct"})
    channel.queue_declare(queue)
    channel.queue_bind(queue, exchange, "k")
    later = pika.BasicProperties(headers={"x-delay": 400})
    began = time.monotonic()
    channel.basic_publish(exchange, "k", b"later", later)
    channel.basic_publish(exchange, "k", b"now")
    assert [body for _, _, body in drained(channel, queue, 2)] == [b"now", b"later"]
    assert time.monotonic() - began >= 0.35


def test_a_queue_that_nobody_uses_goes_after_a_while(connection: Any, name: Name) -> None:
    queue = name("queue")
    connection.channel().queue_declare(queue, arguments={"x-expires": 200})

    time.sleep(0.6)
    with pytest.raises(ChannelClosedByBroker) as caught:
        connection.channel().queue_declare(queue, passive=True)
    assert caught.value.reply_code == 404


def test_a_limit_of_deliveries_ends_a_message_that_always_fails(channel: Any, name: Name) -> None:
    grave, queue, buried = name("grave"), name("queue"), name("buried")
    channel.exchange_declare(grave, "fanout")
    channel.queue_declare(buried)
    channel.queue_bind(buried, grave)
    arguments = {
        "x-queue-type": "quorum",
        "x-delivery-limit": 2,
        "x-dead-letter-exchange": grave,
    }
    channel.queue_declare(queue, durable=True, arguments=arguments)
    channel.basic_publish("", queue, b"poison")
    counts = []
    for method, properties, _ in channel.consume(queue, inactivity_timeout=2):
        if method is None:
            break
        counts.append((properties.headers or {}).get("x-delivery-count", 0))
        channel.basic_nack(method.delivery_tag, requeue=True)
        if len(counts) == 3:
            break
    channel.cancel()
    assert counts == [0, 1, 2]
    [(_, properties, body)] = drained(channel, buried, 1)
    assert (body, properties.headers["x-death"][0]["reason"]) == (b"poison", "delivery_limit")


def test_a_full_queue_makes_its_publisher_wait(
    amqp_node: LocalNode, connection: Any, name: Name
) -> None:
    queue = name("queue")
    said: list[str] = []
    publishing = dial(amqp_node)
    publishing.add_on_connection_blocked_callback(lambda _c, _m: said.append("blocked"))
    publishing.add_on_connection_unblocked_callback(lambda _c, _m: said.append("unblocked"))
    channel = publishing.channel()
    channel.queue_declare(queue, arguments={"x-max-length": 2, "x-overflow": "block"})
    for number in range(5):
        channel.basic_publish("", queue, str(number))
    wait_until(lambda: publishing.process_data_events(0.1) or said == ["blocked"])
    assert [body for _, _, body in drained(connection.channel(), queue, 5)] == [
        str(number).encode() for number in range(5)
    ]
    # What the node had not read yet may find the queue full again.
    wait_until(lambda: publishing.process_data_events(0.1) or said[-1] == "unblocked")
    assert said == ["blocked", "unblocked"] * (len(said) // 2)
    publishing.close()


def test_reply_queues_leave_nothing_behind(amqp_node: LocalNode, connection: Any) -> None:
    for _ in range(3):
        with dial(amqp_node) as asking:
            channel = asking.channel()
            names = [channel.queue_declare("", exclusive=True).method.queue for _ in range(100)]
            for queue in names:
                channel.basic_publish("", queue, b"x")
    channel = connection.channel()

    def are_gone() -> bool:
        try:
            connection.channel().queue_declare(names[-1], passive=True)
        except ChannelClosedByBroker as error:
            return bool(error.reply_code == 404)
        return False

    wait_until(are_gone)
    topics = {path.name.partition("~")[0] for path in (amqp_node.data_dir / "topics").iterdir()}
    assert not [topic for topic in topics if "amq" in topic and "gen" in topic]


def test_a_prefetch_may_be_in_bytes(connection: Any, name: Name) -> None:
    queue = name("queue")
    channel = connection.channel()
    channel.queue_declare(queue)
    for _ in range(5):
        channel.basic_publish("", queue, b"x" * 1_000)
    got: list[int] = []
    channel.basic_qos(prefetch_size=2_500)
    channel.basic_consume(queue, lambda _c, method, _p, _b: got.append(method.delivery_tag))
    wait_until(lambda: connection.process_data_events(0.1) or len(got) >= 2)
    for _ in range(3):
        connection.process_data_events(0.1)
    assert 2 <= len(got) <= 3
    channel.basic_ack(0, multiple=True)
    wait_until(lambda: connection.process_data_events(0.1) or len(got) == 5)


def test_more_urgent_consumers_are_served_first(connection: Any, name: Name) -> None:
    queue = name("queue")
    channel = connection.channel()
    channel.queue_declare(queue)
    channel.basic_qos(prefetch_count=2)
    got: list[str] = []

    def take(_channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
        got.append(method.consumer_tag)

    channel.basic_consume(queue, take, consumer_tag="low")
    channel.basic_consume(queue, take, consumer_tag="high", arguments={"x-priority": 10})
    for _ in range(3):
        channel.basic_publish("", queue, b"x")
    wait_until(lambda: connection.process_data_events(0.1) or len(got) == 3)
    assert sorted(got) == ["high", "high", "low"]


def test_the_largest_message_that_is_set_goes_through_and_a_larger_one_ends_its_channel() -> None:
    arguments = (*WITH_AMQP, "--set", f"amqp.message_bytes_max={MESSAGE_BYTES_MAX}")
    with LocalNode(arguments=arguments) as node, dial(node) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare("large", "fanout", durable=True)
        channel.queue_declare("large", durable=True)
        channel.queue_bind("large", "large")
        body = b"x" * MESSAGE_BYTES_MAX
        for exchange in ("", "large"):
            channel.basic_publish(exchange, "large", body, mandatory=True)
            method, _, got = channel.basic_get("large", auto_ack=True)
            assert method.exchange == exchange
            assert got == body
        with pytest.raises(ChannelClosedByBroker) as caught:
            channel.basic_publish("", "large", body + b"x", mandatory=True)
        assert caught.value.reply_code == 406
        assert "is larger than configured max size" in caught.value.reply_text
