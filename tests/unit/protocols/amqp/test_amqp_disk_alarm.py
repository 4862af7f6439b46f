"""A disk without room for messages: publishers wait, and what they sent unconfirmed is kept."""

import pytest
from tests.unit.protocols.amqp.dialogue import Dialogue

from mainstem.model.errors import ErrorCode, Unavailable
from mainstem.wire.amqp import basic_methods as basic
from mainstem.wire.amqp import connection_methods as connection
from mainstem.wire.amqp import frames
from mainstem.wire.amqp.entity_methods import QueueDeclare
from mainstem.wire.amqp.method_codec import encode_method
from mainstem.wire.amqp.properties import Properties, encode_properties

FULL = Unavailable(ErrorCode.DISK_FULL, "no room")


def opened() -> Dialogue:
    dialogue = Dialogue().open(capabilities=["connection.blocked"])
    dialogue.say(QueueDeclare(queue="q"))
    dialogue.methods()
    return dialogue


def kept(dialogue: Dialogue) -> list[bytes]:
    return [bytes(stored.message.value or b"") for stored in dialogue.queues.found["q"].ready]


def message(body: bytes, channel: int = 1) -> bytes:
    method = encode_method(basic.BasicPublish(routing_key="q"))
    return frames.content_frames(channel, method, encode_properties(Properties()), body, 4096)


def test_a_publisher_is_blocked_from_its_first_message_and_none_is_lost() -> None:
    dialogue = opened()
    dialogue.has_space = False
    # What was read in one piece with it is kept as well, in order.
    dialogue.feed(message(b"1") + message(b"2") + message(b"3"))
    [blocked] = dialogue.methods()
    assert isinstance(blocked, connection.ConnectionBlocked)
    assert blocked.reason == "low on disk"
    assert dialogue.state == "paused"
    assert not dialogue.queues.published, "nothing is tried that would be refused"
    dialogue.hand.pass_time(60_000)
    assert dialogue.state == "paused"
    dialogue.has_space = True
    dialogue.hand.pass_time(1_000)
    assert kept(dialogue) == [b"1", b"2", b"3"]
    [unblocked] = dialogue.methods()
    assert isinstance(unblocked, connection.ConnectionUnblocked)
    assert dialogue.state == "open"
    assert dialogue.memory.used_bytes == 0


def test_who_publishes_nothing_is_not_blocked() -> None:
    dialogue = opened()
    dialogue.publish("q", b"1")
    dialogue.has_space = False
    dialogue.say(basic.BasicConsume(queue="q"))
    dialogue.hand.pass_time(1_000)
    names = [method.NAME for method in dialogue.methods()]
    assert names == ["basic.consume-ok", "basic.deliver"]
    assert dialogue.state == "open"


def test_what_is_refused_on_its_way_is_stored_later_in_order() -> None:
    dialogue = opened()
    dialogue.queues.publish_error = FULL  # the disk filled while they were on their way
    dialogue.feed(message(b"1") + message(b"2"))
    assert dialogue.state == "paused"
    dialogue.hand.pass_time(5_000)
    assert dialogue.state == "paused", "tried again, refused again"
    assert [m.NAME for m in dialogue.methods()] == ["connection.blocked"]
    dialogue.queues.publish_error = None
    dialogue.hand.pass_time(2_000)
    assert kept(dialogue) == [b"1", b"2"]
    assert [m.NAME for m in dialogue.methods()] == ["connection.unblocked"]
    assert dialogue.state == "open"
    assert dialogue.memory.used_bytes == 0


@pytest.mark.parametrize("whose", ["channel", "connection"])
def test_a_client_that_publishes_and_closes_is_answered_when_all_is_stored(whose: str) -> None:
    dialogue = opened()
    dialogue.has_space = False
    is_channel = whose == "channel"
    closes = connection.ChannelClose() if is_channel else connection.ConnectionClose()
    dialogue.feed(message(b"1") + frames.method_frame(int(is_channel), closes))
    dialogue.hand.pass_time(5_000)
    assert [m.NAME for m in dialogue.methods()] == ["connection.blocked"]
    dialogue.has_space = True
    dialogue.hand.pass_time(1_000)
    assert kept(dialogue) == [b"1"]
    assert f"{whose}.close-ok" in [m.NAME for m in dialogue.methods()]


def test_a_connection_that_is_lost_gives_its_memory_back() -> None:
    dialogue = opened()
    dialogue.has_space = False
    dialogue.publish("q", b"1")
    assert dialogue.memory.used_bytes > 0
    dialogue.session.closed()
    dialogue.has_space = True
    dialogue.hand.pass_time(5_000)
    assert dialogue.memory.used_bytes == 0
    assert not dialogue.queues.published


def test_a_publisher_with_confirms_is_told_no_and_blocked_until_there_is_room() -> None:
    dialogue = opened()
    dialogue.ask(basic.ConfirmSelect(), basic.ConfirmSelectOk)
    dialogue.has_space = False
    dialogue.queues.publish_error = FULL
    dialogue.publish("q", b"1")
    assert sorted(m.NAME for m in dialogue.methods()) == ["basic.nack", "connection.blocked"]
    dialogue.hand.pass_time(30_000)
    assert dialogue.state == "paused"
    assert not dialogue.methods()
    dialogue.has_space, dialogue.queues.publish_error = True, None
    dialogue.hand.pass_time(2_000)
    assert [m.NAME for m in dialogue.methods()] == ["connection.unblocked"]
