"""Load through a bare socket that speaks AMQP: as little work on this side as can be.

    python -m bench.loaders.amqp publish HOST:PORT QUEUE COUNT BYTES PERSISTENT
    python -m bench.loaders.amqp publish HOST:PORT EXCHANGE/KEY COUNT BYTES PERSISTENT
    python -m bench.loaders.amqp deliver HOST:PORT QUEUE COUNT PREFETCH 0
    python -m bench.loaders.amqp replies HOST:PORT any COUNT 0 0

Publishes are confirmed, a thousand in flight; deliveries are acknowledged one by one. ``replies``
declares exclusive queues, uses each once and deletes it. Prints the messages and the seconds they
took.
"""

import json
import socket
import struct
import sys
import time

from mainstem.wire.amqp import basic_methods as basic
from mainstem.wire.amqp import connection_methods as connection
from mainstem.wire.amqp import entity_methods as entity
from mainstem.wire.amqp import frames
from mainstem.wire.amqp.method import Method
from mainstem.wire.amqp.method_codec import decode_method, encode_method
from mainstem.wire.amqp.properties import Properties, encode_properties

IN_FLIGHT = 1_000
SLICE = 100
FRAME_BYTES = 131_072
_TAG_AND_FLAG = struct.Struct(">QB").unpack_from
_ACK_HEAD = frames.HEAD.pack(1, 1, 13) + struct.pack(">HH", *basic.BasicAck.ID)
_NACK = struct.pack(">HH", *basic.BasicNack.ID)


class Line:
    """One connection with one channel."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._held = bytearray()
        self.socket.sendall(frames.PROTOCOL_HEADER)
        self.hear()
        self.ask(connection.ConnectionStartOk(response=b"\0guest\0guest"), 0)
        tuned = connection.ConnectionTuneOk(channel_max=100, frame_max=FRAME_BYTES)
        self.socket.sendall(frames.method_frame(0, tuned))
        self.ask(connection.ConnectionOpen(), 0)
        self.ask(connection.ChannelOpen())

    def ask(self, method: Method, channel: int = 1) -> Method:
        """Say something and hear the answer."""
        self.socket.sendall(frames.method_frame(channel, method))
        return self.hear()

    def hear(self) -> Method:
        """The next method."""
        while True:
            for kind, start, until in self.frames():
                if kind == frames.METHOD:
                    return decode_method(bytes(self._last[start:until]), 0, until - start)

    def frames(self) -> list[tuple[int, int, int]]:
        """Whole frames that came, as (type, start, until) of ``data``."""
        piece = self.socket.recv(1 << 18)
        if not piece:
            raise SystemExit("the server hung up")
        self._held += piece
        found = []
        at, held = 0, self._held
        while len(held) - at >= 7:
            kind, _, size = frames.HEAD.unpack_from(held, at)
            if len(held) - at < 8 + size:
                break
            found.append((kind, at + 7, at + 7 + size))
            at += 8 + size
        self._last, self._held = held, held[at:]
        return found

    @property
    def data(self) -> bytearray:
        """What the last frames lie in."""
        return self._last


def publish(line: Line, queue: str, count: int, size: int, *, persistent: bool) -> None:
    """Publish with confirms."""
    line.ask(basic.ConfirmSelect())
    exchange, _, key = queue.rpartition("/")
    properties = Properties(delivery_mode=2 if persistent else 1, content_type="text/plain")
    one = frames.content_frames(
        1,
        encode_method(basic.BasicPublish(exchange=exchange, routing_key=key)),
        encode_properties(properties),
        b"x" * size,
        FRAME_BYTES,
    )
    some = one * SLICE
    sent = confirmed = singly = 0
    while confirmed + singly < count:
        while sent < count and sent - confirmed - singly <= IN_FLIGHT - SLICE:
            line.socket.sendall(some)
            sent += SLICE
        for _, start, _ in line.frames():
            if line.data.startswith(_NACK, start):
                raise SystemExit("a publish was refused")
            tag, multiple = _TAG_AND_FLAG(line.data, start + 4)
            if multiple:
                # Tags up to this one; those that were confirmed one by one before it lie below.
                confirmed, singly = tag, 0
            else:
                singly += 1


def deliver(line: Line, queue: str, count: int, prefetch: int) -> None:
    """Consume and acknowledge."""
    line.ask(basic.BasicQos(prefetch_count=prefetch))
    line.socket.sendall(frames.method_frame(1, basic.BasicConsume(queue=queue)))
    tag = 0
    while tag < count:
        acks = []
        for kind, _, _ in line.frames():
            if kind == frames.HEADER:
                tag += 1
                acks.append(_ACK_HEAD + struct.pack(">QB", tag, 0) + b"\xce")
        line.socket.sendall(b"".join(acks))
    line.ask(basic.BasicQos(prefetch_count=prefetch))


def replies(line: Line, count: int) -> None:
    """Queues for one answer each."""
    properties = encode_properties(Properties(delivery_mode=1))
    for _ in range(count):
        declared = line.ask(entity.QueueDeclare(exclusive=True, auto_delete=True))
        assert isinstance(declared, entity.QueueDeclareOk), declared
        sent = encode_method(basic.BasicPublish(routing_key=declared.queue))
        frames_of_one = frames.content_frames(1, sent, properties, b"answer", FRAME_BYTES)
        line.socket.sendall(frames_of_one)
        line.ask(basic.BasicGet(queue=declared.queue, no_ack=True))
        line.ask(entity.QueueDelete(queue=declared.queue))


def main() -> None:
    """Run one load."""
    mode, address, queue, count, number, flag = sys.argv[1:]
    line = Line(address)
    began = time.perf_counter()
    if mode == "publish":
        publish(line, queue, int(count), int(number), persistent=flag == "1")
    elif mode == "replies":
        replies(line, int(count))
    else:
        deliver(line, queue, int(count), int(number))
    seconds = time.perf_counter() - began
    print(json.dumps({"messages": int(count), "seconds": seconds}))


if __name__ == "__main__":
    main()
