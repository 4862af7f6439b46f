"""Methods, frames and properties against pamqp, which knows AMQP on its own."""

from typing import Any, get_type_hints

import pamqp.commands
import pamqp.frame
import pamqp.header
import pytest

from mainstem.wire.amqp import frames
from mainstem.wire.amqp.basic_methods import BasicDeliver, BasicPublish
from mainstem.wire.amqp.entity_methods import QueueDeclare
from mainstem.wire.amqp.fields import Malformed, Timestamp
from mainstem.wire.amqp.method import Method
from mainstem.wire.amqp.method_codec import (
    METHODS,
    UnknownMethod,
    decode_method,
    encode_method,
)
from mainstem.wire.amqp.properties import Properties, decode_properties, encode_properties

# pamqp's words for ours.
_NAMES = {
    "reserved_1": "ticket",
    "type": "exchange_type",
    "is_global": "global_",
    "failed_class": "class_id",
    "failed_method": "method_id",
}
_SAMPLES: dict[str, Any] = {
    "octet": 9,
    "short": 513,
    "long": 70_000,
    "longlong": 2**40 + 1,
    "shortstr": "name",
    "longstr": b"bytes",
    "bit": True,
    "table": {"x-max-length": 5, "note": "kept", "nested": {"flag": True}},
}
# pamqp does not know RabbitMQ's newer methods, and has other numbers for one.
_OURS = {"connection.update-secret", "connection.update-secret-ok"}


def sample(kind: type[Method]) -> Method:
    hints = get_type_hints(kind, include_extras=True)
    values = {
        name: type(getattr(kind(), name))()
        if name.startswith("reserved")
        else _SAMPLES[hints[name].__metadata__[0]]
        for name in kind.__struct_fields__
    }
    return kind(**values)


@pytest.mark.parametrize("kind", METHODS.values(), ids=lambda kind: kind.NAME)
def test_a_method_survives_the_wire(kind: type[Method]) -> None:
    method = sample(kind)

    payload = encode_method(method)

    assert decode_method(b"??" + payload + b"?", 2, 2 + len(payload)) == method


@pytest.mark.filterwarnings("ignore:This command is deprecated")
@pytest.mark.parametrize(
    "kind",
    [kind for kind in METHODS.values() if kind.NAME not in _OURS],
    ids=lambda kind: kind.NAME,
)
def test_an_independent_codec_reads_the_same_method(kind: type[Method]) -> None:
    method = sample(kind)

    _, channel, found = pamqp.frame.unmarshal(frames.method_frame(7, method))

    assert channel == 7
    assert type(found).__qualname__.lower() == kind.NAME.replace("-", "")
    for name in kind.__struct_fields__:
        if not name.startswith("reserved"):
            theirs = getattr(found, name, getattr(found, _NAMES.get(name, name), None))
            ours = getattr(method, name)
            assert theirs in (ours, ours.decode() if isinstance(ours, bytes) else ours)


def test_a_method_of_an_independent_codec_is_read() -> None:
    theirs = pamqp.commands.Queue.Declare(queue="q", durable=True, arguments={"x-expires": 1000})

    frame = pamqp.frame.marshal(theirs, 3)

    assert decode_method(frame, 7, len(frame) - 1) == QueueDeclare(
        queue="q", durable=True, arguments={"x-expires": 1000}
    )


def test_an_unknown_method_says_its_numbers() -> None:
    with pytest.raises(UnknownMethod) as caught:
        decode_method(b"\x00\x63\x00\x07", 0, 4)

    assert caught.value.numbers == (99, 7)


def test_bytes_behind_a_method_are_malformed() -> None:
    payload = encode_method(BasicPublish(exchange="e", routing_key="k")) + b"\0"

    with pytest.raises(Malformed):
        decode_method(payload, 0, len(payload))


@pytest.mark.parametrize("size", [0, 1, 4088, 4089, 10_000])
def test_a_message_is_cut_into_frames_of_the_agreed_size(size: int) -> None:
    method = BasicDeliver(consumer_tag="c", delivery_tag=9, exchange="e", routing_key="k")
    body = bytes(range(256)) * 40
    body = body[:size]
    properties = encode_properties(Properties(content_type="text/plain"))

    data = frames.content_frames(5, encode_method(method), properties, body, 4096)

    found: list[Any] = []
    while data:
        taken, channel, frame = pamqp.frame.unmarshal(data)
        assert taken <= 4096
        assert channel == 5
        found.append(frame)
        data = data[taken:]
    assert found[1].body_size == size
    assert b"".join(frame.value for frame in found[2:]) == body


def test_the_quick_deliver_is_the_method() -> None:
    quick = frames.deliver_payload(b"\x01c", 77, b"\x01e", b"\x03k.1", redelivered=True)

    method = BasicDeliver(
        consumer_tag="c", delivery_tag=77, redelivered=True, exchange="e", routing_key="k.1"
    )
    assert quick == encode_method(method)


FULL = Properties(
    content_type="application/json",
    content_encoding="utf-8",
    headers={"n": 1, "big": 2**40, "text": "t", "none": None, "list": [1, "a", False]},
    delivery_mode=2,
    priority=5,
    correlation_id="c",
    reply_to="r",
    expiration="60000",
    message_id="m",
    timestamp=Timestamp(1_700_000_000),
    type="kind",
    user_id="guest",
    app_id="app",
    cluster_id="",
)


def test_properties_are_read_by_an_independent_codec() -> None:
    data = frames.content_frames(1, encode_method(BasicPublish()), encode_properties(FULL), b"", 0)
    taken, _, _ = pamqp.frame.unmarshal(data)

    header: Any
    _, _, header = pamqp.frame.unmarshal(data[taken:])

    assert header.properties.headers == FULL.headers
    assert header.properties.message_type == "kind"
    assert header.properties.priority == 5
    assert header.properties.timestamp.timestamp() == FULL.timestamp


def test_properties_survive_the_wire() -> None:
    raw = encode_properties(FULL)

    assert decode_properties(b"?" + raw + b"?", 1, 1 + len(raw)) == FULL


@pytest.mark.parametrize("flags", [b"\x00\x01", b"\x00\x02", b""])
def test_unknown_property_flags_are_malformed(flags: bytes) -> None:
    with pytest.raises(Malformed):
        decode_properties(flags, 0, len(flags))
