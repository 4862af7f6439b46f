"""AMQP, MQTT and native listeners under the same bad manners; one node has to survive them all."""

import contextlib
import random
import socket
import time
from collections.abc import Iterator

import psutil
import pytest
from tests.integration.mqtt.raw_client import RawClient

from mainstem import connect_blocking
from mainstem.testing.local_node import LocalNode
from mainstem.wire.mqtt.kinds import V5
from mainstem.wire.mqtt.packets import Disconnect, Publish, Suback, Subscribe, Subscription
from mainstem.wire.mqtt.reasons import Reason

CONNECTIONS_MAX = 20
SUBSCRIPTIONS_MAX = 50
LOGIN_TIMEOUT_S = 1.0
# What a client says first, so that it cannot be told from an honest one that is slow.
OPENINGS = {
    "amqp": b"AMQP\x00\x00\x09\x01",
    "mqtt": b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01a",
    "native": b"\x00\x00\x00\x40\x00\x00\x00\x00\x01" + b"\x81" * 32,
}
LISTENERS = pytest.mark.parametrize("listener", OPENINGS)


@pytest.fixture(scope="module")
def node() -> Iterator[LocalNode]:
    settings = {
        "amqp.enabled": "true",
        "mqtt.enabled": "true",
        "native.enabled": "true",
        "amqp.max_connections": CONNECTIONS_MAX,
        "mqtt.max_connections": CONNECTIONS_MAX,
        "native.max_connections": CONNECTIONS_MAX,
        "mqtt.subscriptions_max": SUBSCRIPTIONS_MAX,
        "security.login_timeout_ms": int(LOGIN_TIMEOUT_S * 1000),
    }
    flags = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    with LocalNode(arguments=flags) as made:
        yield made
        assert "Traceback" not in made.log_text(), made.log_tail()
        assert made.stop() == 0


@contextlib.contextmanager
def dialled(node: LocalNode, listener: str) -> Iterator[socket.socket]:
    host, _, port = str(node.announced[listener]).rpartition(":")
    with socket.create_connection((host, int(port)), 10) as made:
        yield made


def is_ended(connection: socket.socket, within_s: float) -> bool:
    """Whether the other side closes, whatever it says before."""
    connection.settimeout(within_s)
    try:
        while connection.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except OSError:
        return True
    return True


@LISTENERS
def test_a_login_that_drips_in_is_cut_off_in_time(node: LocalNode, listener: str) -> None:
    began = time.monotonic()
    with dialled(node, listener) as slow:
        with contextlib.suppress(OSError):
            for byte in OPENINGS[listener][:-1]:
                slow.send(bytes([byte]))
                time.sleep(0.1)
        assert is_ended(slow, 3 * LOGIN_TIMEOUT_S)
    assert time.monotonic() - began < 4 * LOGIN_TIMEOUT_S


@LISTENERS
def test_no_more_connections_than_allowed_are_open(node: LocalNode, listener: str) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(CONNECTIONS_MAX):
            stack.enter_context(dialled(node, listener))
        time.sleep(0.2)
        with dialled(node, listener) as one_more:
            assert is_ended(one_more, 0.8)


@LISTENERS
def test_noise_is_closed_and_leaves_nothing_behind(node: LocalNode, listener: str) -> None:
    process = psutil.Process(node.pid)
    time.sleep(LOGIN_TIMEOUT_S + 0.3)
    files, memory = process.num_fds(), process.memory_info().rss
    chance = random.Random(7)
    for number in range(150):
        with dialled(node, listener) as rude, contextlib.suppress(OSError):
            opening = OPENINGS[listener] if number % 2 else b""
            rude.sendall(opening + chance.randbytes(chance.randrange(200)))
        if number % 10 == 9:
            time.sleep(0.05)
    time.sleep(LOGIN_TIMEOUT_S + 0.3)

    assert process.num_fds() <= files + 2
    assert process.memory_info().rss - memory < 8 << 20


def test_a_flood_of_subscriptions_is_refused_beyond_the_limit(node: LocalNode) -> None:
    with RawClient(str(node.announced["mqtt"]), V5) as raw:
        assert raw.connect(client_id="").reason == Reason.SUCCESS
        wishes = tuple(Subscription(f"flood/{number}", 1) for number in range(80))
        raw.send(Subscribe(1, wishes))
        answer = raw.receive()

        assert isinstance(answer, Suback)
        assert [reason < 3 for reason in answer.reasons] == [True] * 50 + [False] * 30
        assert set(answer.reasons[50:]) == {Reason.QUOTA_EXCEEDED}


def test_filters_and_topics_of_thousands_of_levels_are_refused(node: LocalNode) -> None:
    with RawClient(str(node.announced["mqtt"]), V5) as raw:
        assert raw.connect(client_id="").reason == Reason.SUCCESS
        raw.send(Subscribe(1, (Subscription("+/" * 30_000 + "#", 0), Subscription("a/#", 0))))
        answer = raw.receive()
        assert isinstance(answer, Suback)
        assert answer.reasons == (Reason.TOPIC_FILTER_INVALID, 0)
        raw.send(Publish("/" * 30_000, b"", 0))
        told = raw.receive()
        assert isinstance(told, Disconnect)
        assert told.reason == Reason.TOPIC_NAME_INVALID
        assert raw.is_closed()


def test_whoever_acknowledges_nothing_gets_no_more_than_his_window(node: LocalNode) -> None:
    address = str(node.announced["mqtt"])
    with RawClient(address, V5) as lazy, RawClient(address, V5) as writer:
        lazy.connect(client_id="lazy", properties={"receive_maximum": 5})
        writer.connect(client_id="busy")
        lazy.send(Subscribe(1, (Subscription("unread", 1),)))
        assert isinstance(lazy.receive(), Suback)
        for number in range(1, 101):
            writer.send(Publish("unread", b"x", 1, packet_id=number))
        for _ in range(100):
            writer.receive()
        sent = [lazy.receive() for _ in range(5)]

        assert all(isinstance(each, Publish) for each in sent)
        assert len({each.packet_id for each in sent if isinstance(each, Publish)}) == 5
        lazy.sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            lazy.receive()


def test_the_node_serves_on(node: LocalNode) -> None:
    with connect_blocking(str(node.announced["native"])) as queues:
        queues.declare("after", preset="plain")
        queues.queue("after").publish(b"still here")
