"""A client written from the page of the protocol alone: sockets, struct, zlib and MessagePack."""

import contextlib
import socket
import struct
import zlib
from typing import Any, Self

import cramjam
import msgspec


class RawClient:
    """One TCP connection, used as the page says, or badly."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 10)
        self.number = 0
        self.news: list[dict[str, Any]] = []
        self.compression = "none"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def connect(self, **fields: Any) -> dict[str, Any]:
        answer = self.ask("connect", version=1, client="raw", **fields)
        self.compression = answer.get("compression", "none")
        return answer

    def ask(self, word: str, **fields: Any) -> dict[str, Any]:
        self.number += 1
        self.send(self.number, {"type": word, **fields})
        while True:
            number, answer = self.receive()
            if number == self.number:
                return answer
            self.news.append(answer)

    def tell(self, word: str, **fields: Any) -> None:
        self.send(0, {"type": word, **fields})

    def send(self, number: int, word: dict[str, Any]) -> None:
        body, flags = msgspec.msgpack.encode(word), 0
        if self.compression == "gzip":
            packer = zlib.compressobj(wbits=31)
            packed = packer.compress(body) + packer.flush()
            body, flags = struct.pack(">I", len(body)) + packed, 1
        elif self.compression == "brotli":
            packed = bytes(cramjam.brotli.compress(body))
            body, flags = struct.pack(">I", len(body)) + packed, 2
        self.send_bytes(struct.pack(">IBI", 5 + len(body), flags, number) + body)

    def send_bytes(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            self.socket.sendall(data)

    def next_news(self) -> dict[str, Any]:
        return self.news.pop(0) if self.news else self.receive()[1]

    def receive(self) -> tuple[int, dict[str, Any]]:
        length, flags, number = struct.unpack(">IBI", self._exactly(9))
        body = self._exactly(length - 5)
        if flags == 1:
            body = zlib.decompress(body[4:], wbits=31)
        elif flags == 2:
            body = bytes(cramjam.brotli.decompress(body[4:]))
        answer: dict[str, Any] = msgspec.msgpack.decode(body)
        return number, answer

    def is_closed(self) -> bool:
        """Whether the other side ends the connection, whatever else it still says."""
        try:
            while self.socket.recv(65_536):
                pass
        except ConnectionResetError:
            pass
        except TimeoutError:
            return False
        return True

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise ConnectionError("closed")
            data += more
        return data
