"""MQTT over WebSocket, on the HTTP port."""

import base64
import socket

import pytest
from tests.integration.mqtt.conftest import Dial
from tests.integration.mqtt.paho_client import PahoClient

from mainstem.testing.local_node import LocalNode
from mainstem.wire.mqtt.encoder import encode
from mainstem.wire.mqtt.kinds import V3_1_1
from mainstem.wire.mqtt.packets import Connect
from mainstem.wire.websocket import accept_key

KEY = base64.b64encode(bytes(16)).decode()


def over_websocket(node: LocalNode, client_id: str = "") -> PahoClient:
    client = PahoClient(node.http, client_id, transport="websockets")
    client.client.ws_set_options(path="/mqtt")
    return client.connect()


def test_a_client_over_websocket_talks_to_one_over_tcp(
    mqtt_node: LocalNode, dial: Dial, topic: str
) -> None:
    plain, web = dial(mqtt_node), over_websocket(mqtt_node)
    try:
        plain.subscribe(topic)
        web.subscribe(f"{topic}/back", 2)

        large = bytes(range(256)) * 400
        web.publish(topic, large)
        plain.publish(f"{topic}/back", b"small", 2)
        plain.publish(f"{topic}/back", large, 2)

        assert plain.payloads() == [large]
        assert web.payloads(2) == [b"small", large]
    finally:
        web.close()


class RawSocket:
    """A client of a few bytes."""

    def __init__(self, node: LocalNode, **headers: str) -> None:
        host, _, port = node.http.rpartition(":")
        self.sock = socket.create_connection((host, int(port)), timeout=10)
        told = {
            "Host": node.http,
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Key": KEY,
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Protocol": "mqtt",
        } | {name.replace("_", "-"): value for name, value in headers.items()}
        path = told.pop("path", "/mqtt")
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in told.items())]
        self.sock.sendall("\r\n".join([*lines, "", ""]).encode())
        self.head = self.sock.recv(4096).decode()

    def send(self, first: int, payload: bytes) -> None:
        mask = b"\x01\x02\x03\x04"
        hidden = bytes(byte ^ mask[place % 4] for place, byte in enumerate(payload))
        self.sock.sendall(bytes((first, 0x80 | len(payload))) + mask + hidden)

    def rest(self) -> bytes:
        found = b""
        while piece := self.sock.recv(4096):
            found += piece
        return found


REFUSED = {
    "another path": ({"path": "/other"}, "404"),
    "a page of another site": ({"Origin": "https://evil.example"}, "403"),
    "a name that is not this machine's": ({"Host": "rebound.example"}, "403"),
    "another version": ({"Sec-WebSocket-Version": "8"}, "426"),
    "a key that is none": ({"Sec-WebSocket-Key": "short"}, "400"),
    "another subprotocol": ({"Sec-WebSocket-Protocol": "chat"}, "400"),
}


@pytest.mark.parametrize(("headers", "status"), REFUSED.values(), ids=REFUSED)
def test_handshakes_that_are_none_are_refused(
    mqtt_node: LocalNode, headers: dict[str, str], status: str
) -> None:
    raw = RawSocket(mqtt_node, **headers)
    with raw.sock:
        assert raw.head.startswith(f"HTTP/1.1 {status} ")


def test_a_handshake_is_answered_as_the_standard_asks(mqtt_node: LocalNode) -> None:
    raw = RawSocket(mqtt_node, Origin=f"http://{mqtt_node.http}")
    with raw.sock:
        assert raw.head.startswith("HTTP/1.1 101 ")
        assert f"sec-websocket-accept: {accept_key(KEY)}\r\n" in raw.head
        assert "sec-websocket-protocol: mqtt\r\n" in raw.head


BAD_FRAMES = {
    "text": (0x81, b"hello", 1003),
    "a continuation of nothing": (0x80, b"hello", 1002),
    "an opcode that does not exist": (0x83, b"", 1002),
    "compression that was not agreed upon": (0xC2, b"", 1002),
    "bytes that are not MQTT": (0x82, b"GET / HTTP/1.1", 1002),
}


@pytest.mark.parametrize(("first", "payload", "code"), BAD_FRAMES.values(), ids=BAD_FRAMES)
def test_bad_frames_close_with_a_code(
    mqtt_node: LocalNode, first: int, payload: bytes, code: int
) -> None:
    raw = RawSocket(mqtt_node)
    with raw.sock:
        raw.send(first, payload)
        assert raw.rest() == b"\x88\x02" + code.to_bytes(2)


def test_a_large_frame_before_a_login_is_refused_by_its_head(mqtt_node: LocalNode) -> None:
    raw = RawSocket(mqtt_node)
    with raw.sock:
        raw.sock.sendall(b"\x82\xff" + (512 * 1024).to_bytes(8) + bytes(4))
        assert raw.rest() == b"\x88\x02" + (1009).to_bytes(2)


def test_a_packet_may_be_cut_into_frames_anywhere(mqtt_node: LocalNode) -> None:
    packet = encode(Connect(client_id="cut"), V3_1_1)
    raw = RawSocket(mqtt_node)
    with raw.sock:
        raw.send(0x02, packet[:3])
        raw.send(0x00, packet[3:4])
        raw.send(0x89, b"are you there")
        raw.send(0x80, packet[4:])
        found = b""
        while len(found) < 21:
            found += raw.sock.recv(100)
    assert found == b"\x8a\x0dare you there" + b"\x82\x04\x20\x02\x00\x00"
