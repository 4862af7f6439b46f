"""Bytes that no client would send: the connection ends, the node and everybody else go on."""

import struct
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from tests.integration.amqp.conftest import WITH_AMQP, dial, drained
from tests.integration.amqp.raw import Raw

from mainstem.testing.local_node import LocalNode
from mainstem.wire.amqp import basic_methods as basic
from mainstem.wire.amqp import connection_methods as connection
from mainstem.wire.amqp import entity_methods as entity
from mainstem.wire.amqp import frames
from mainstem.wire.amqp.method_codec import encode_method

MIB = 1 << 20


@pytest.fixture(scope="module")
def node() -> Iterator[LocalNode]:
    """A node that must survive everything in this file."""
    limits = ("--set", "security.login_timeout_ms=1500")
    with LocalNode(arguments=(*WITH_AMQP, *limits)) as made:
        pid = made.pid
        yield made
        assert made.pid == pid
        assert "Traceback" not in made.log_text(), made.log_tail()
        assert made.stop() == 0


@pytest.fixture(autouse=True)
def _others_are_served(node: LocalNode) -> Iterator[None]:
    yield
    with dial(node) as link:
        channel = link.channel()
        name = channel.queue_declare("", exclusive=True).method.queue
        channel.basic_publish("", name, b"still here")
        assert [body for _, _, body in drained(channel, name, 1)] == [b"still here"]


def refusal(raw: Raw) -> tuple[int, str]:
    method: Any = raw.on_note()
    assert isinstance(method, connection.ConnectionClose), method
    return method.reply_code, method.reply_text


@pytest.mark.parametrize(
    "greeting",
    [
        b"AMQP\x00\x01\x00\x00",
        b"AMQP\x03\x01\x00\x00",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01" * 9,
    ],
)
def test_other_protocols_are_told_what_is_spoken_here(node: LocalNode, greeting: bytes) -> None:
    with Raw(node) as raw:
        raw.send(greeting)
        assert raw.all() == frames.PROTOCOL_HEADER


def test_a_length_of_two_gigabytes_before_a_login_costs_nothing(node: LocalNode) -> None:
    process = psutil.Process(node.pid)
    before = process.memory_info().rss
    for _ in range(20):
        with Raw(node) as raw:
            raw.send(frames.PROTOCOL_HEADER)
            raw.on_note()
            raw.send(frames.HEAD.pack(1, 0, 2**31 - 1) + b"x" * 1_000)
            assert refusal(raw)[0] == 501
            raw.all()
    assert process.memory_info().rss - before < MIB


def test_whoever_says_nothing_is_sent_away(node: LocalNode) -> None:
    with Raw(node) as silent, Raw(node) as slow:
        began = time.monotonic()
        slow.send(frames.PROTOCOL_HEADER)
        assert silent.all() == b""
        slow.all()
        assert time.monotonic() - began < 8


def test_nothing_is_served_before_a_login(node: LocalNode) -> None:
    with Raw(node) as raw:
        raw.send(frames.PROTOCOL_HEADER)
        raw.on_note()
        raw.say(connection.ChannelOpen(), 1)
        assert refusal(raw)[0] == 503
        assert raw.all() == b""


@pytest.mark.parametrize("mechanism", ["EXTERNAL", "SCRAM-SHA-256", "GSSAPI", ""])
def test_only_what_was_offered_is_a_way_in(node: LocalNode, mechanism: str) -> None:
    with Raw(node) as raw:
        raw.send(frames.PROTOCOL_HEADER)
        raw.on_note()
        raw.say(connection.ConnectionStartOk(mechanism=mechanism, response=b"\0a\0b"))
        assert refusal(raw)[0] == 503


def test_a_large_message_that_is_announced_and_never_sent_costs_nothing(node: LocalNode) -> None:
    process = psutil.Process(node.pid)
    with Raw(node) as raw:
        raw.open()
        before = process.memory_info().rss
        header = struct.pack(">HHQH", 60, 0, 16 * MIB, 0)
        publish = encode_method(basic.BasicPublish(routing_key="q"))
        for number in range(2, 500):
            raw.say(connection.ChannelOpen(), number)
            raw.send(frames.HEAD.pack(1, number, len(publish)) + publish + b"\xce")
            raw.send(frames.HEAD.pack(2, number, len(header)) + header + b"\xce")
        raw.say(entity.QueueDeclare(queue="", exclusive=True), 1)
        while not isinstance(raw.on_note(), entity.QueueDeclareOk):
            pass
        assert process.memory_info().rss - before < 16 * MIB


@pytest.mark.parametrize("size", [2**63, 2**64 - 1, 16 * MIB + 1])
def test_a_message_beyond_the_limit_ends_its_channel(node: LocalNode, size: int) -> None:
    with Raw(node) as raw:
        raw.open()
        raw.say(basic.BasicPublish(routing_key="q"), 1)
        header = struct.pack(">HHQH", 60, 0, size, 0)
        raw.send(frames.HEAD.pack(2, 1, len(header)) + header + b"\xce")
        method: Any = raw.on_note()
        assert isinstance(method, connection.ChannelClose)
        assert method.reply_code == 406


def test_tables_within_tables_end_the_connection(node: LocalNode) -> None:
    table = b""
    for _ in range(1_000):
        table = b"\x01tF" + len(table).to_bytes(4, "big") + table
    arguments = len(table).to_bytes(4, "big") + table
    payload = encode_method(entity.QueueDeclare(queue="q"))[:-4] + arguments
    with Raw(node) as raw:
        raw.open()
        raw.send(frames.HEAD.pack(1, 1, len(payload)) + payload + b"\xce")
        code, text = refusal(raw)
        assert code == 502
        assert "nested" in text


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "..", ".", "a/b", "\0", "a\tb", "__queues", "__consumer_offsets"]
)
def test_no_name_leads_anywhere_else(node: LocalNode, name: str) -> None:
    with dial(node) as link:
        channel = link.channel()
        channel.confirm_delivery()
        channel.queue_declare(name)
        channel.exchange_declare(name, "fanout")
        channel.queue_bind(name, name)
        channel.basic_publish(name, name, b"x", mandatory=True)
        assert [body for _, _, body in drained(channel, name, 1)] == [b"x"]
        channel.queue_delete(name)
        channel.exchange_delete(name)
    folders = {path.name for path in node.data_dir.iterdir()}
    assert "etc" not in folders
    assert not (node.data_dir.parent / "etc").exists()


def test_a_client_that_never_reads_holds_up_nobody(node: LocalNode) -> None:
    process = psutil.Process(node.pid)
    with Raw(node) as deaf, dial(node) as link:
        deaf.open()
        deaf.say(entity.QueueDeclare(queue="deaf"), 1)
        deaf.on_note()
        deaf.say(basic.BasicConsume(queue="deaf", no_ack=True), 1)
        deaf.on_note()
        before = process.memory_info().rss
        channel = link.channel()
        channel.confirm_delivery()
        for _ in range(200):
            channel.basic_publish("", "deaf", b"x" * MIB)
        assert process.memory_info().rss - before < 120 * MIB
        assert channel.queue_declare("deaf", passive=True).method.message_count > 50
        channel.queue_purge("deaf")
