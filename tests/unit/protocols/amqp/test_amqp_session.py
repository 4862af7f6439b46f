"""The connection: handshake, frames out of place, heartbeats, the end."""

import pytest
from tests.unit.protocols.amqp.dialogue import Dialogue

from mainstem.wire.amqp import basic_methods as basic
from mainstem.wire.amqp import connection_methods as connection
from mainstem.wire.amqp import entity_methods as entity
from mainstem.wire.amqp import frames
from mainstem.wire.amqp.method import Method
from mainstem.wire.amqp.method_codec import encode_method


def refusal(dialogue: Dialogue) -> tuple[int, str]:
    [last] = dialogue.methods()[-1:]
    assert isinstance(last, connection.ConnectionClose | connection.ChannelClose)
    return last.reply_code, last.reply_text


def test_the_server_says_who_it_is_and_what_it_can() -> None:
    dialogue = Dialogue()
    dialogue.feed(frames.PROTOCOL_HEADER)
    [start] = dialogue.methods()
    assert isinstance(start, connection.ConnectionStart)
    assert start.mechanisms.split() == [b"PLAIN", b"AMQPLAIN", b"ANONYMOUS"]
    assert start.server_properties["product"] == "Mainstem"
    assert start.server_properties["mainstem_version"] == "1"
    # Clients compare these numbers with those of RabbitMQ.
    version = tuple(int(part) for part in start.server_properties["version"].split("."))
    assert (3, 13) <= version < (4,)
    assert start.server_properties["capabilities"]["publisher_confirms"] is True


def test_another_protocol_is_told_what_is_spoken_here() -> None:
    dialogue = Dialogue()
    dialogue.feed(b"AMQP\x03\x01\x00\x00")
    assert bytes(dialogue.sent) == frames.PROTOCOL_HEADER
    assert dialogue.state == "closed"


def test_bytes_may_come_one_by_one() -> None:
    dialogue = Dialogue()
    held = bytearray()
    need = 8
    data = frames.PROTOCOL_HEADER + frames.method_frame(
        0, connection.ConnectionStartOk(response=b"\0guest\0guest")
    )
    for byte in data:
        held.append(byte)
        start, need = dialogue.session.receive(held, memoryview(bytes(held)), 0, len(held))
        assert need > len(held) - start
        del held[:start]
        dialogue.hand.turn()
    assert [type(each) for each in dialogue.methods()] == [
        connection.ConnectionStart,
        connection.ConnectionTune,
    ]


@pytest.mark.parametrize(
    ("chosen", "name"),
    [
        (connection.ConnectionTuneOk(channel_max=11, frame_max=4096), "channel_max"),
        (connection.ConnectionTuneOk(channel_max=0, frame_max=4096), "channel_max"),
        (connection.ConnectionTuneOk(channel_max=1, frame_max=4095), "frame_max"),
        (connection.ConnectionTuneOk(channel_max=1, frame_max=4097), "frame_max"),
        (connection.ConnectionTuneOk(channel_max=1, frame_max=0), "frame_max"),
    ],
)
def test_what_was_not_offered_cannot_be_chosen(chosen: Method, name: str) -> None:
    dialogue = Dialogue()
    dialogue.feed(frames.PROTOCOL_HEADER)
    dialogue.say(connection.ConnectionStartOk(response=b"\0guest\0guest"), 0)
    dialogue.say(chosen, 0)
    code, text = refusal(dialogue)
    assert code == 530
    assert name in text
    assert dialogue.state == "closed"


def test_a_frame_that_claims_too_much_ends_the_connection_before_it_is_kept() -> None:
    dialogue = Dialogue()
    dialogue.feed(frames.PROTOCOL_HEADER)
    got, need = dialogue.feed(frames.HEAD.pack(1, 0, 2**31 - 1))
    assert (got, need) == (7, 7)
    assert refusal(dialogue)[0] == 501
    assert dialogue.state == "closed"


def test_a_frame_that_does_not_end_where_it_says_ends_the_connection() -> None:
    dialogue = Dialogue().open()
    dialogue.feed(frames.method_frame(1, basic.BasicQos())[:-1] + b"\x00")
    assert refusal(dialogue)[0] == 501


@pytest.mark.parametrize("frame", [0, 1, 2])
def test_a_message_whose_frames_do_not_end_where_they_say_ends_the_connection(frame: int) -> None:
    dialogue = Dialogue().open()
    method = encode_method(basic.BasicPublish(routing_key="q"))
    whole = bytearray(frames.content_frames(1, method, b"\x00\x00", b"body!", 0))
    dialogue.feed(bytes(whole))
    assert len(dialogue.queues.published) == 1
    ends = [at for at in range(len(whole)) if whole[at] == frames.END]
    assert len(ends) == 3
    whole[ends[frame]] = 0
    dialogue.feed(bytes(whole))
    assert refusal(dialogue)[0] == 501
    assert len(dialogue.queues.published) == 1


@pytest.mark.parametrize(
    ("method", "channel", "code"),
    [
        (connection.ConnectionStartOk(), 0, 503),
        (connection.ConnectionTuneOk(), 0, 503),
        (connection.ConnectionOpen(), 0, 503),
        (basic.BasicQos(), 2, 504),
        (connection.ChannelOpen(), 1, 504),
        (connection.ChannelOpen(), 11, 530),
        (basic.BasicDeliver(), 1, 503),
        (entity.QueueDeclareOk(), 1, 503),
        (basic.BasicRecover(requeue=False), 1, 540),
        (entity.ExchangeDeclare(exchange="x", type="odd"), 1, 503),
        (basic.BasicConsume(queue="q", no_local=True), 1, 540),
    ],
)
def test_what_does_not_belong_there_ends_the_connection(
    method: Method, channel: int, code: int
) -> None:
    dialogue = Dialogue().open()
    dialogue.say(method, channel)
    assert refusal(dialogue)[0] == code
    assert dialogue.state == "open"
    dialogue.say(connection.ConnectionCloseOk(), 0)
    assert dialogue.state == "closed"
    assert len(dialogue.queues.gone) == 1


def test_an_unknown_method_is_named() -> None:
    dialogue = Dialogue().open()
    dialogue.feed(frames.HEAD.pack(1, 1, 4) + b"\x00\x63\x00\x01\xce")
    [close] = dialogue.methods()
    assert isinstance(close, connection.ConnectionClose)
    assert (close.reply_code, close.failed_class, close.failed_method) == (540, 99, 1)


def test_a_method_between_publish_and_its_content_ends_the_connection() -> None:
    dialogue = Dialogue().open()
    dialogue.say(basic.BasicPublish(routing_key="q"))
    dialogue.say(basic.BasicQos())
    assert refusal(dialogue)[0] == 505


def test_a_client_that_closes_is_answered_and_gone() -> None:
    dialogue = Dialogue().open()
    dialogue.say(connection.ConnectionClose(), 0)
    assert isinstance(dialogue.methods()[-1], connection.ConnectionCloseOk)
    assert dialogue.state == "closed"
    assert len(dialogue.queues.gone) == 1


def test_a_lost_connection_returns_what_it_had() -> None:
    dialogue = Dialogue().open()
    dialogue.ask(entity.QueueDeclare(queue="q"), entity.QueueDeclareOk)
    dialogue.publish("q")
    dialogue.say(basic.BasicConsume(queue="q"))
    assert not dialogue.queues.found["q"].ready
    dialogue.session.closed()
    dialogue.hand.turn()
    assert len(dialogue.queues.found["q"].ready) == 1
    assert len(dialogue.queues.gone) == 1


def test_exclusive_queues_go_with_their_connection() -> None:
    first = Dialogue().open()
    second = Dialogue(first.queues, first.hand).open()
    first.ask(entity.QueueDeclare(queue="mine", exclusive=True), entity.QueueDeclareOk)
    second.say(entity.QueueDeclare(queue="mine", passive=True))
    code, text = refusal(second)
    assert code == 405
    assert text.startswith("RESOURCE_LOCKED - cannot obtain exclusive access to locked queue")
    first.session.closed()
    assert "mine" not in first.queues.found


def test_heartbeats_are_sent_and_silence_ends_the_connection() -> None:
    dialogue = Dialogue().open(heartbeat=10)
    dialogue.hand.pass_time(10_100)
    assert bytes(dialogue.sent) == frames.HEARTBEAT_FRAME
    dialogue.feed(frames.HEARTBEAT_FRAME)
    dialogue.hand.pass_time(10_000)
    assert dialogue.state == "open"
    dialogue.hand.pass_time(25_000)
    assert dialogue.state == "closed"


def test_a_node_that_stops_says_so() -> None:
    dialogue = Dialogue().open()
    dialogue.session.shut_down()
    assert refusal(dialogue) == (320, "CONNECTION_FORCED - the node is shutting down")


def test_reading_stops_while_a_queue_makes_publishers_wait() -> None:
    dialogue = Dialogue().open(capabilities=["connection.blocked"])
    [flow] = dialogue.queues.flows
    assert flow is not None
    flow(False)
    dialogue.hand.turn()
    assert dialogue.state == "paused"
    assert isinstance(dialogue.methods()[-1], connection.ConnectionBlocked)
    flow(True)
    dialogue.hand.pass_time(100)
    assert dialogue.state == "open"
    assert isinstance(dialogue.methods()[-1], connection.ConnectionUnblocked)


def test_a_message_that_is_too_large_ends_the_channel_only() -> None:
    dialogue = Dialogue().open()
    dialogue.publish("q", b"x" * 100_001)
    code, text = refusal(dialogue)
    assert code == 406
    assert "100001 is larger" in text
    dialogue.say(connection.ChannelCloseOk())
    dialogue.ask(connection.ChannelOpen(), connection.ChannelOpenOk)


def test_a_body_that_is_longer_than_announced_ends_the_connection() -> None:
    dialogue = Dialogue().open()
    method = encode_method(basic.BasicPublish(routing_key="q"))
    whole = frames.content_frames(1, method, b"\x00\x00", b"ab", 0)
    header = whole[: -(8 + 2)]
    dialogue.feed(header + frames.HEAD.pack(3, 1, 3) + b"abc\xce")
    assert refusal(dialogue)[0] == 505
