"""Channels: publishing, confirms, transactions, deliveries, settlements, what waits behind what."""

from typing import TYPE_CHECKING

import pytest
from tests.unit.protocols.amqp.dialogue import Dialogue

from mainstem.broker.api.queues import (
    ACKNOWLEDGE,
    REJECT,
    RELEASE,
    RETURN,
    Published,
    PublishStatus,
)
from mainstem.model.errors import ErrorCode, Unavailable
from mainstem.protocols.amqp.consuming import CREDIT_MAX, UNSENT_BYTES
from mainstem.protocols.amqp.direct_reply import PendingReplies
from mainstem.protocols.amqp.publishing import IN_FLIGHT_MAX
from mainstem.wire.amqp import basic_methods as basic
from mainstem.wire.amqp import connection_methods as connection
from mainstem.wire.amqp import entity_methods as entity
from mainstem.wire.amqp.fields import Timestamp
from mainstem.wire.amqp.method import Method
from mainstem.wire.amqp.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def dialogue() -> Dialogue:
    """A channel with a queue ``q``."""
    made = Dialogue().open()
    made.ask(entity.QueueDeclare(queue="q"), entity.QueueDeclareOk)
    return made


def closing(dialogue: Dialogue) -> tuple[int, str]:
    [close] = [each for each in dialogue.methods() if isinstance(each, connection.ChannelClose)]
    return close.reply_code, close.reply_text


def test_a_message_goes_through_the_queue_with_its_properties(dialogue: Dialogue) -> None:
    sent = Properties(
        content_type="text/plain", headers={"a": 1}, timestamp=Timestamp(5), message_id="m"
    )
    dialogue.publish("q", b"body" * 2_000, properties=sent)
    dialogue.say(basic.BasicConsume(queue="q", consumer_tag="me"))
    ok, delivered = dialogue.heard()
    assert ok.method == basic.BasicConsumeOk(consumer_tag="me")
    assert delivered.method == basic.BasicDeliver(
        consumer_tag="me", delivery_tag=1, routing_key="q"
    )
    assert delivered.properties == sent
    assert delivered.body == b"body" * 2_000


def test_confirms_of_a_burst_are_one_answer_each_or_together(dialogue: Dialogue) -> None:
    dialogue.publish("q")
    dialogue.ask(basic.ConfirmSelect(), basic.ConfirmSelectOk)
    for _ in range(3):
        dialogue.publish("q")
    assert dialogue.methods() == [basic.BasicAck(delivery_tag=tag) for tag in (1, 2, 3)]


def test_a_refused_message_is_nacked(dialogue: Dialogue) -> None:
    dialogue.ask(basic.ConfirmSelect(), basic.ConfirmSelectOk)
    dialogue.queues.refuses_publishes = True
    dialogue.publish("q", mandatory=True)
    assert dialogue.methods() == [basic.BasicNack(delivery_tag=1)]


def test_a_publisher_is_disconnected_when_another_node_serves_queues(dialogue: Dialogue) -> None:
    dialogue.ask(basic.ConfirmSelect(), basic.ConfirmSelectOk)
    dialogue.queues.publish_error = Unavailable(ErrorCode.NOT_COORDINATOR, "node 2 serves queues")
    dialogue.publish("q")
    nack, close = dialogue.methods()
    assert nack == basic.BasicNack(delivery_tag=1)
    assert isinstance(close, connection.ConnectionClose)
    assert (close.reply_code, "node 2" in close.reply_text) == (320, True)


def test_a_refused_message_for_nobody_is_nacked_and_not_returned(dialogue: Dialogue) -> None:
    dialogue.ask(basic.ConfirmSelect(), basic.ConfirmSelectOk)
    dialogue.queues.refuses_publishes = True
    dialogue.publish("nobody", mandatory=True)
    assert dialogue.methods() == [basic.BasicNack(delivery_tag=1)]


@pytest.mark.parametrize("mode", ["confirm", "tx"])
def test_a_message_that_may_be_stored_or_not_is_neither_acked_nor_nacked(
    dialogue: Dialogue, mode: str
) -> None:
    if mode == "confirm":
        dialogue.ask(basic.ConfirmSelect(), basic.ConfirmSelectOk)
    else:
        dialogue.ask(basic.TxSelect(), basic.TxSelectOk)
    dialogue.queues.soon = lambda _: None
    dialogue.publish("q")
    if mode == "tx":
        dialogue.say(basic.TxCommit())
    [settled] = dialogue.queues.settlers
    moved = Unavailable(ErrorCode.NOT_WRITER, "another node writes it")
    settled([1], Published(PublishStatus.UNKNOWN, is_routed=False, error=moved))
    dialogue.hand.turn()
    [close] = dialogue.methods()
    assert isinstance(close, connection.ConnectionClose)
    assert close.reply_text == "CONNECTION_FORCED - another node writes it"


def test_confirms_without_a_gap_are_one(dialogue: Dialogue) -> None:
    dialogue.ask(basic.ConfirmSelect(), basic.ConfirmSelectOk)
    dialogue.queues.soon = lambda _: None
    for _ in range(7):
        dialogue.publish("q")
    [settled] = dialogue.queues.settlers
    stored = Published(PublishStatus.STORED, is_routed=True)
    for tokens in ([2], [1], [3, 4], [6, 7], [5]):
        settled(tokens, stored)
    dialogue.hand.turn()
    assert dialogue.methods() == [
        basic.BasicAck(delivery_tag=2),
        basic.BasicAck(delivery_tag=1),
        basic.BasicAck(delivery_tag=4, multiple=True),
        basic.BasicAck(delivery_tag=6),
        basic.BasicAck(delivery_tag=7),
        basic.BasicAck(delivery_tag=5),
    ]


def test_a_return_comes_before_its_confirm(dialogue: Dialogue) -> None:
    dialogue.ask(basic.ConfirmSelect(), basic.ConfirmSelectOk)
    dialogue.publish("nobody", b"lost", mandatory=True, properties=Properties(app_id="x"))
    returned, confirm = dialogue.heard()
    assert returned.method == basic.BasicReturn(
        reply_code=312, reply_text="NO_ROUTE", exchange="", routing_key="nobody"
    )
    assert (returned.body, returned.properties.app_id) == (b"lost", "x")
    assert confirm.method == basic.BasicAck(delivery_tag=1)


def test_a_message_for_nobody_is_confirmed_where_it_need_not_arrive(dialogue: Dialogue) -> None:
    dialogue.ask(basic.ConfirmSelect(), basic.ConfirmSelectOk)
    dialogue.publish("nobody")
    assert dialogue.methods() == [basic.BasicAck(delivery_tag=1)]


@pytest.mark.parametrize(
    ("first", "second"), [(basic.ConfirmSelect(), basic.TxSelect()),
                          (basic.TxSelect(), basic.ConfirmSelect())]
)  # fmt: skip
def test_a_channel_is_confirmed_or_transactional(
    dialogue: Dialogue, first: Method, second: Method
) -> None:
    dialogue.say(first)
    dialogue.say(second)
    assert closing(dialogue)[0] == 406


def test_a_commit_of_what_was_refused_ends_the_channel(dialogue: Dialogue) -> None:
    dialogue.ask(basic.TxSelect(), basic.TxSelectOk)
    dialogue.publish("q")
    dialogue.queues.refuses_publishes = True
    dialogue.say(basic.TxCommit())
    assert closing(dialogue) == (406, "PRECONDITION_FAILED - partial tx completion")


def test_a_transaction_settles_when_it_is_committed(dialogue: Dialogue) -> None:
    dialogue.publish("q")
    dialogue.publish("q")
    dialogue.ask(basic.TxSelect(), basic.TxSelectOk)
    dialogue.say(basic.BasicConsume(queue="q"))
    dialogue.say(basic.BasicAck(delivery_tag=1))
    assert dialogue.queues.settled == []
    dialogue.say(basic.TxRollback())
    dialogue.say(basic.BasicAck(delivery_tag=2, multiple=True))
    dialogue.say(basic.TxCommit())
    assert [how for _, how in dialogue.queues.settled] == [ACKNOWLEDGE, ACKNOWLEDGE]
    assert isinstance(dialogue.methods()[-1], basic.TxCommitOk)


def test_a_transaction_is_confirmed_only_when_its_settlements_are_committed(
    dialogue: Dialogue,
) -> None:
    dialogue.publish("q")
    dialogue.ask(basic.TxSelect(), basic.TxSelectOk)
    dialogue.say(basic.BasicConsume(queue="q"))
    dialogue.say(basic.BasicAck(delivery_tag=1))
    dialogue.queues.refuses_settlements = True
    dialogue.say(basic.TxCommit())
    assert not [each for each in dialogue.methods() if isinstance(each, basic.TxCommitOk)]


@pytest.mark.parametrize("method", [basic.TxCommit(), basic.TxRollback()])
def test_there_is_nothing_to_commit_without_a_transaction(
    dialogue: Dialogue, method: Method
) -> None:
    dialogue.say(method)
    assert closing(dialogue) == (406, "PRECONDITION_FAILED - channel is not transactional")


@pytest.mark.parametrize(
    ("method", "outcome"),
    [
        (basic.BasicAck(delivery_tag=1), ACKNOWLEDGE),
        (basic.BasicNack(delivery_tag=1, requeue=True), RETURN),
        (basic.BasicNack(delivery_tag=1, requeue=False), REJECT),
        (basic.BasicReject(delivery_tag=1, requeue=True), RETURN),
        (basic.BasicReject(delivery_tag=1, requeue=False), REJECT),
        (basic.BasicRecover(requeue=True), RELEASE),
        (basic.BasicRecoverAsync(requeue=True), RELEASE),
    ],
)
def test_a_delivery_ends_as_the_client_says(
    dialogue: Dialogue, method: Method, outcome: object
) -> None:
    dialogue.publish("q")
    dialogue.say(basic.BasicGet(queue="q"))
    dialogue.say(method)
    assert [how for _, how in dialogue.queues.settled] == [outcome]


@pytest.mark.parametrize("tag", [0, 2, 2**63])
def test_an_unknown_tag_ends_the_channel(dialogue: Dialogue, tag: int) -> None:
    dialogue.publish("q")
    dialogue.ask_content(basic.BasicGet(queue="q"))
    dialogue.say(basic.BasicAck(delivery_tag=tag))
    assert closing(dialogue) == (406, f"PRECONDITION_FAILED - unknown delivery tag {tag}")


def test_a_tag_that_was_settled_is_unknown(dialogue: Dialogue) -> None:
    dialogue.publish("q")
    dialogue.say(basic.BasicGet(queue="q"))
    dialogue.say(basic.BasicAck(delivery_tag=1))
    dialogue.say(basic.BasicAck(delivery_tag=1, multiple=True))
    assert closing(dialogue)[0] == 406


def test_getting_tells_how_many_are_left(dialogue: Dialogue) -> None:
    dialogue.publish("q", b"1")
    dialogue.publish("q", b"2")
    dialogue.say(basic.BasicGet(queue="q"))
    [got] = dialogue.heard()
    assert isinstance(got.method, basic.BasicGetOk)
    assert (got.method.message_count, got.body) == (1, b"1")
    dialogue.say(basic.BasicGet(queue="q", no_ack=True))
    dialogue.heard()
    dialogue.ask(basic.BasicGet(queue="q"), basic.BasicGetEmpty)


def test_no_name_is_the_queue_declared_last(dialogue: Dialogue) -> None:
    name = dialogue.ask(entity.QueueDeclare(exclusive=True), entity.QueueDeclareOk).queue
    assert name.startswith("amq.gen-")
    dialogue.ask(entity.QueueBind(exchange="amq.fanout"), entity.QueueBindOk)
    assert dialogue.queues.bound[0].key == name
    assert dialogue.ask(entity.QueuePurge(), entity.QueuePurgeOk).message_count == 0


def test_without_a_queue_declared_before_no_name_is_no_queue() -> None:
    dialogue = Dialogue().open()
    dialogue.say(basic.BasicConsume(queue=""))
    assert closing(dialogue) == (404, "NOT_FOUND - no previously declared queue")


def test_nobody_is_answered_who_wants_no_answer(dialogue: Dialogue) -> None:
    dialogue.say(entity.QueueDeclare(queue="other", nowait=True))
    dialogue.say(entity.QueueBind(queue="other", exchange="amq.fanout", nowait=True))
    dialogue.say(basic.BasicConsume(queue="other", consumer_tag="c", nowait=True))
    dialogue.say(basic.BasicCancel(consumer_tag="c", nowait=True))
    dialogue.say(entity.QueueDelete(queue="other", nowait=True))
    assert dialogue.methods() == []


def test_a_consumer_tag_is_used_once(dialogue: Dialogue) -> None:
    dialogue.say(basic.BasicConsume(queue="q", consumer_tag="c"))
    dialogue.say(basic.BasicConsume(queue="q", consumer_tag="c"))
    close = dialogue.methods()[-1]
    assert isinstance(close, connection.ConnectionClose)
    assert close.reply_code == 530


def test_what_comes_behind_a_declaration_waits_for_it(dialogue: Dialogue) -> None:
    turn, dialogue.hand.turn = dialogue.hand.turn, lambda: None  # type: ignore[method-assign]
    dialogue.say(entity.QueueDeclare(queue="new"))
    dialogue.publish("new", b"x", mandatory=True)
    dialogue.say(basic.BasicGet(queue="new"))
    dialogue.hand.turn = turn  # type: ignore[method-assign]
    dialogue.hand.turn()
    declared, got = dialogue.heard()
    assert isinstance(declared.method, entity.QueueDeclareOk)
    assert isinstance(got.method, basic.BasicGetOk)


def test_reading_stops_while_too_much_waits(dialogue: Dialogue) -> None:
    turn, dialogue.hand.turn = dialogue.hand.turn, lambda: None  # type: ignore[method-assign]
    dialogue.say(entity.QueueDeclare(queue="new"))
    for _ in range(90):
        dialogue.publish("new", b"x" * 100_000)
    assert dialogue.state == "paused"
    dialogue.hand.turn = turn  # type: ignore[method-assign]
    dialogue.hand.turn()
    assert dialogue.state == "open"
    assert len(dialogue.queues.found["new"].ready) == 90


def test_a_client_that_takes_nothing_gets_no_more(dialogue: Dialogue) -> None:
    dialogue.say(basic.BasicConsume(queue="q", no_ack=True))
    dialogue.unsent = UNSENT_BYTES + 1
    for _ in range(CREDIT_MAX + 500):
        dialogue.publish("q", b"x")
    first = sum(isinstance(each, basic.BasicDeliver) for each in dialogue.methods())
    assert 0 < first <= CREDIT_MAX
    dialogue.hand.pass_time(1_000)
    assert dialogue.methods() == []
    dialogue.unsent = 0
    dialogue.hand.pass_time(1_000)
    rest = sum(isinstance(each, basic.BasicDeliver) for each in dialogue.methods())
    assert first + rest == CREDIT_MAX + 500


def test_a_channel_that_wants_a_rest_gets_none_until_it_says_so(dialogue: Dialogue) -> None:
    dialogue.say(basic.BasicConsume(queue="q", no_ack=True))
    dialogue.heard()
    dialogue.ask(connection.ChannelFlow(active=False), connection.ChannelFlowOk)
    dialogue.publish("q")
    assert dialogue.methods() == []
    dialogue.say(connection.ChannelFlow(active=True))
    assert [type(each) for each in dialogue.methods()] == [
        connection.ChannelFlowOk,
        basic.BasicDeliver,
    ]


def test_a_deleted_queue_is_told_to_those_who_want_to_know() -> None:
    for wants, told in (((), 0), (("consumer_cancel_notify",), 1)):
        dialogue = Dialogue().open(capabilities=wants)
        dialogue.say(entity.QueueDeclare(queue="q"))
        dialogue.say(basic.BasicConsume(queue="q", consumer_tag="c"))
        dialogue.say(entity.QueueDelete(queue="q"))
        cancels = [each for each in dialogue.methods() if isinstance(each, basic.BasicCancel)]
        assert len(cancels) == told


def test_a_redelivered_message_says_how_often_it_failed(dialogue: Dialogue) -> None:
    dialogue.publish("q", properties=Properties(headers={"mine": "x"}))
    dialogue.say(basic.BasicGet(queue="q"))
    dialogue.say(basic.BasicNack(delivery_tag=1))
    dialogue.heard()
    dialogue.say(basic.BasicGet(queue="q"))
    [again] = dialogue.heard()
    assert isinstance(again.method, basic.BasicGetOk)
    assert again.method.redelivered
    assert again.properties.headers == {"mine": "x", "x-delivery-count": 1}


def test_a_user_speaks_for_himself(dialogue: Dialogue) -> None:
    dialogue.publish("q", properties=Properties(user_id="guest"))
    dialogue.publish("q", properties=Properties(user_id="root"))
    code, text = closing(dialogue)
    assert code == 406
    assert "user_id property set to 'root' but authenticated user was 'guest'" in text


@pytest.mark.parametrize("expiration", ["", "-1", "soon", "1.5", "4294967296", "٣"])
def test_an_expiration_is_a_whole_number(dialogue: Dialogue, expiration: str) -> None:
    dialogue.publish("q", properties=Properties(expiration=expiration))
    code, text = closing(dialogue)
    assert code == 406
    assert "invalid expiration" in text


def test_an_answer_reaches_the_channel_that_asked_while_it_lives() -> None:
    desk = PendingReplies()
    asking = Dialogue(replies=desk).open()
    serving = Dialogue(asking.queues, asking.hand, replies=desk).open()
    asking.say(basic.BasicConsume(queue="amq.rabbitmq.reply-to", no_ack=True, consumer_tag="r"))
    asking.say(entity.QueueDeclare(queue="requests"))
    asking.heard()
    asking.publish("requests", properties=Properties(reply_to="amq.rabbitmq.reply-to"))
    serving.say(basic.BasicGet(queue="requests", no_ack=True))
    [request] = serving.heard()
    where = request.properties.reply_to
    assert where is not None
    serving.publish(where, b"answer", properties=Properties(correlation_id="1"))
    [answer] = asking.heard()
    assert (answer.body, answer.properties.correlation_id) == (b"answer", "1")
    asking.say(basic.BasicCancel(consumer_tag="r"))
    serving.publish(where, b"late", mandatory=True)
    [returned] = serving.heard()
    assert isinstance(returned.method, basic.BasicReturn)


def test_requests_need_somebody_who_waits(dialogue: Dialogue) -> None:
    dialogue.publish("q", properties=Properties(reply_to="amq.rabbitmq.reply-to"))
    assert closing(dialogue)[1].endswith("fast reply consumer does not exist")


def test_a_closed_channel_forgets_what_it_was_in_the_middle_of(dialogue: Dialogue) -> None:
    dialogue.publish("q")
    dialogue.say(basic.BasicConsume(queue="q"))
    dialogue.say(connection.ChannelClose())
    assert isinstance(dialogue.methods()[-1], connection.ChannelCloseOk)
    assert len(dialogue.queues.found["q"].ready) == 1
    dialogue.say(connection.ChannelOpen())
    dialogue.say(basic.BasicAck(delivery_tag=1))
    assert closing(dialogue)[0] == 406


@pytest.mark.parametrize(("count", "size"), [(IN_FLIGHT_MAX + 10, 1), (400, 99_000)])
def test_a_publisher_that_is_quicker_than_the_disk_is_read_no_further(
    dialogue: Dialogue, count: int, size: int
) -> None:
    later: list[Callable[[], None]] = []
    soon, dialogue.queues.soon = dialogue.queues.soon, later.append
    for _ in range(count):
        dialogue.publish("q", b"x" * size)
    assert dialogue.state == "paused"
    for call in later:
        call()
    assert dialogue.state == "open"
    dialogue.queues.soon = soon
    found = dialogue.ask(entity.QueueDeclare(queue="q", passive=True), entity.QueueDeclareOk)
    assert found.message_count == count


def test_a_channel_that_ended_gives_no_late_answers(dialogue: Dialogue) -> None:
    turn, dialogue.hand.turn = dialogue.hand.turn, lambda: None  # type: ignore[method-assign]
    dialogue.say(entity.QueueDeclare(queue="new"))
    dialogue.publish("new", b"x" * 100_001)
    dialogue.hand.turn = turn  # type: ignore[method-assign]
    dialogue.hand.turn()
    assert [type(each) for each in dialogue.methods()] == [connection.ChannelClose]
