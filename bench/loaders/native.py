"""Load through a bare socket that speaks the native protocol: as little work here as can be.

    python -m bench.loaders.native publish HOST:PORT QUEUE COUNT BYTES
    python -m bench.loaders.native deliver HOST:PORT QUEUE COUNT WINDOW

One message in each frame, a thousand unanswered; deliveries are acknowledged as they come. Prints
the messages and the seconds they took.
"""

import json
import socket
import sys
import time
from typing import Any

from mainstem.wire.native import requests
from mainstem.wire.native.answers import Deliver, Published, read_answer
from mainstem.wire.native.frames import HEAD, HEAD_BYTES, LENGTH_BYTES, frame
from mainstem.wire.native.words import Error, WireMessage, Word, encode

IN_FLIGHT = 1_000
SLICE = 100


class Line:
    """One connection."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._held = bytearray()
        self._words: list[Any] = []
        self.ask(requests.Connect())

    def ask(self, word: Word) -> Any:
        """Say something and hear the answer."""
        self.socket.sendall(frame(1, encode(word)))
        answers: list[Any] = []
        while not answers:
            found = self.words()
            answers = [each for number, each in found if number]
            self._words += [each for number, each in found if not number]
        if isinstance(answers[0], Error):
            raise SystemExit(f"{word} was refused: {answers[0]}")
        return answers[0]

    def news(self) -> list[Any]:
        """What came without being asked for."""
        kept, self._words = self._words, []
        return kept or [word for _, word in self.words()]

    def words(self) -> list[tuple[int, Any]]:
        """Whole frames that came."""
        return [(number, read_answer(body)) for number, body in self.bodies()]

    def bodies(self) -> list[tuple[int, bytes]]:
        """The same, unread."""
        piece = self.socket.recv(1 << 18)
        if not piece:
            raise SystemExit("the server hung up")
        self._held += piece
        held = bytes(self._held)
        found, at = [], 0
        while len(held) - at >= HEAD_BYTES:
            length, _, number = HEAD.unpack_from(held, at)
            end = at + LENGTH_BYTES + length
            if end > len(held):
                break
            found.append((number, held[at + HEAD_BYTES : end]))
            at = end
        self._held = bytearray(held[at:])
        return found


def publish(line: Line, queue: str, count: int, size: int) -> None:
    """Publish, each message confirmed by itself."""
    one = requests.Publish(key=queue, messages=[WireMessage(value=b"x" * size)])
    some = frame(1, encode(one)) * SLICE
    good = encode(Published(stored=1))
    sent = confirmed = 0
    while confirmed < count:
        while sent < count and sent - confirmed <= IN_FLIGHT - SLICE:
            line.socket.sendall(some)
            sent += SLICE
        for _, body in line.bodies():
            if body != good:
                raise SystemExit(f"a publish was refused: {body!r}")
            confirmed += 1


def deliver(line: Line, queue: str, count: int, window: int) -> None:
    """Consume and acknowledge."""
    line.ask(requests.Subscribe(subscription=1, queue=queue, window=window))
    seen = 0
    while seen < count:
        for word in line.news():
            if isinstance(word, Deliver):
                numbers = [delivery.number for delivery in word.deliveries]
                seen += len(numbers)
                line.socket.sendall(frame(0, encode(requests.Ack(subscription=1, numbers=numbers))))
    line.ask(requests.Ping())


def main() -> None:
    """Run one load."""
    mode, address, queue, count, number = sys.argv[1:]
    line = Line(address)
    began = time.perf_counter()
    run = publish if mode == "publish" else deliver
    run(line, queue, int(count), int(number))
    print(json.dumps({"messages": int(count), "seconds": time.perf_counter() - began}))


if __name__ == "__main__":
    main()
