"""Properties and headers of AMQP as headers of a record."""

from mainstem.protocols.amqp.convert import Converter, message_of
from mainstem.queues.routing.message_routing import routing_of
from mainstem.wire.amqp.properties import Properties, encode_properties


def test_a_message_that_is_routed_again_from_its_record_goes_the_same_way() -> None:
    sent = Properties(
        type="a property",
        priority=3,
        message_id="m",
        expiration="1000",
        headers={"type": "a header", "expires-at": 7, "plain": "p", "x-delay": 5},
    )

    message, routing = message_of(Converter().parsed(encode_properties(sent)), b"body", "key", 50)

    assert routing == routing_of(message)
    assert routing.headers["type"] == b"a header"
    assert "message-id" not in routing.headers
    assert (message.header("type"), message.header("message-id")) == (b"a property", b"m")
    assert message.expires_ms == 1_050


def test_what_only_the_node_writes_is_not_taken_from_clients() -> None:
    sent = Properties(
        headers={"x-dead-letter-excluded": '["q"]', "x-dead-letter-id": "1", "h": "v"}
    )

    message, routing = message_of(Converter().parsed(encode_properties(sent)), b"", "key", 50)

    assert set(routing.headers) == {"h"}
    assert message.header("x-dead-letter-id") is None
