"""One TCP connection that speaks AMQP badly, or well, method by method."""

import contextlib
import socket
from typing import NamedTuple, Self

from tests.integration.amqp.conftest import Server

from mainstem.wire.amqp import connection_methods as connection
from mainstem.wire.amqp import frames
from mainstem.wire.amqp.basic_methods import BasicPublish
from mainstem.wire.amqp.method import Method
from mainstem.wire.amqp.method_codec import decode_method, encode_method


class Frame(NamedTuple):
    """One frame; ``method`` is None where it is another kind of frame."""

    channel: int
    method: Method | None


class Raw:
    """One TCP connection, used badly."""

    def __init__(self, node: Server) -> None:
        host, _, port = node.amqp.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            self.socket.sendall(data)

    def say(self, method: Method, channel: int = 0) -> None:
        self.send(frames.method_frame(channel, method))

    def on_note(self) -> Method:
        head = self._exactly(7)
        _, _, size = frames.HEAD.unpack(head)
        payload = self._exactly(size + 1)
        return decode_method(payload, 0, size)

    def frame(self) -> Frame:
        """The next frame that is no heartbeat."""
        while True:
            kind, channel, size = frames.HEAD.unpack(self._exactly(7))
            payload = self._exactly(size + 1)
            if kind != frames.HEARTBEAT:
                is_method = kind == frames.METHOD
                return Frame(channel, decode_method(payload, 0, size) if is_method else None)

    def content(self) -> bytes:
        """The header frame of the next message, undecoded."""
        while True:
            kind, _, size = frames.HEAD.unpack(self._exactly(7))
            payload = self._exactly(size + 1)
            if kind == frames.HEADER:
                return payload

    def methods_until(self, kind: type[Method]) -> list[Method]:
        """Methods of all channels up to the first of a kind, which is the last in the list."""
        found: list[Method] = []
        while not found or not isinstance(found[-1], kind):
            method = self.frame().method
            if method is not None:
                found.append(method)
        return found

    def publish(self, exchange: str, key: str, body: bytes = b"x", channel: int = 1) -> bytes:
        """The frames of a message."""
        method = encode_method(BasicPublish(exchange=exchange, routing_key=key))
        return frames.content_frames(channel, method, b"\0\0", body, 131_072)

    def all(self) -> bytes:
        """What comes until the other side closes."""
        data = bytearray()
        with contextlib.suppress(ConnectionResetError):
            while piece := self.socket.recv(65_536):
                data += piece
        return bytes(data)

    def open(self, capabilities: dict[str, bool] | None = None) -> Self:
        self.send(frames.PROTOCOL_HEADER)
        self.on_note()
        properties = {"capabilities": capabilities or {}}
        self.say(
            connection.ConnectionStartOk(client_properties=properties, response=b"\0guest\0guest")
        )
        self.on_note()
        self.say(connection.ConnectionTuneOk(channel_max=2047, frame_max=131_072))
        self.say(connection.ConnectionOpen())
        self.on_note()
        self.say(connection.ChannelOpen(), 1)
        self.on_note()
        return self

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            assert piece, "closed"
            data += piece
        return data
