"""A client that sends exactly the packets and bytes that a test wants."""

import contextlib
import socket
from typing import Self

from mainstem.wire.mqtt.decoder import decode, frame_at
from mainstem.wire.mqtt.encoder import encode
from mainstem.wire.mqtt.kinds import V3_1_1
from mainstem.wire.mqtt.packets import Connack, Connect, Packet


class RawClient:
    """One connection, packet by packet."""

    def __init__(self, address: str, version: int = V3_1_1) -> None:
        host, _, port = address.rpartition(":")
        self.sock = socket.create_connection((host, int(port)), timeout=15)
        self.version = version
        self._held = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, *packets: Packet) -> None:
        """Send packets in one piece."""
        self.sock.sendall(b"".join(encode(packet, self.version) for packet in packets))

    def send_bytes(self, data: bytes) -> None:
        """Send anything."""
        with contextlib.suppress(ConnectionError):
            self.sock.sendall(data)

    def connect(self, **told: object) -> Connack:
        """CONNECT, and the answer to it."""
        self.send(Connect(version=self.version, **told))  # type: ignore[arg-type]
        answer = self.receive()
        assert isinstance(answer, Connack)
        return answer

    def receive(self) -> Packet:
        """The next packet; ConnectionError when the node hangs up."""
        while True:
            frame = frame_at(self._held, 0, len(self._held))
            if frame is not None and sum(frame) <= len(self._held):
                head, size = frame
                first, body = self._held[0], bytes(self._held[head : head + size])
                del self._held[: head + size]
                return decode(first, body, self.version)
            piece = self.sock.recv(65_536)
            if not piece:
                raise ConnectionError("the node hung up")
            self._held += piece

    def is_closed(self) -> bool:
        """Whether the node hangs up without another word."""
        try:
            return not self._held and not self.sock.recv(1)
        except ConnectionError:
            return True
