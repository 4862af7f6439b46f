"""Load through bare sockets that speak MQTT 3.1.1: as little work on this side as can be.

    python -m bench.loaders.mqtt through HOST:PORT TOPIC COUNT BYTES QOS
    python -m bench.loaders.mqtt idle HOST:PORT COUNT

``through``: one connection publishes, another one is subscribed with the same QoS; no more than a
thousand messages are between the two. Prints the messages and the seconds they took. ``idle``: so
many connections are opened, and a line is printed; they stay until standard input ends.
"""

import json
import select
import socket
import struct
import sys
import time

IN_FLIGHT = 1_000
SLICE = 50
PUBLISH, PUBACK = 0x30, 0x40


def remaining(size: int) -> bytes:
    """A length as MQTT writes it."""
    found = bytearray()
    while True:
        size, low = divmod(size, 128)
        found.append(low | (0x80 if size else 0))
        if not size:
            return bytes(found)


def text(word: bytes) -> bytes:
    """A text as MQTT writes it."""
    return struct.pack(">H", len(word)) + word


def packet(first: int, body: bytes) -> bytes:
    """One packet."""
    return bytes([first]) + remaining(len(body)) + body


class Line:
    """One connection."""

    def __init__(self, address: str, client_id: bytes) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._held = b""
        head = text(b"MQTT") + b"\x04\x02" + struct.pack(">H", 0)
        self.socket.sendall(packet(0x10, head + text(client_id)))
        self.hear(0x20)

    def hear(self, first: int) -> None:
        """Wait for one packet of that kind."""
        while all(kind != first for kind, _, _ in self.packets()):
            pass

    def packets(self) -> list[tuple[int, int, int]]:
        """Whole packets that came, as (first byte, start, until) of ``data``."""
        piece = self.socket.recv(1 << 18)
        if not piece:
            raise SystemExit("the server hung up")
        data = self.data = self._held + piece
        found, at, size = [], 0, len(data)
        while size - at >= 2:
            length = shift = 0
            body = at + 1
            while body < size:
                byte = data[body]
                body += 1
                length |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    break
            else:
                break
            if body + length > size or data[body - 1] >= 0x80:
                break
            found.append((data[at], body, body + length))
            at = body + length
        self._held = data[at:]
        return found


class Through:
    """Messages from one connection to another."""

    def __init__(self, address: str, topic: bytes, size: int, qos: int) -> None:
        self.reader, self.writer = Line(address, b"reader"), Line(address, b"writer")
        self.reader.socket.sendall(packet(0x82, b"\0\1" + text(topic) + bytes([qos])))
        self.reader.hear(0x90)
        self._qos = qos
        self._head = len(topic) + 2
        self._id = 0
        self._first = bytes([PUBLISH | qos << 1])
        self._before, self._after = text(topic), b"x" * size
        self._length = remaining(len(self._before) + 2 * (qos > 0) + size)

    def slice(self) -> bytes:
        """The next packets to send."""
        if not self._qos:
            return (self._first + self._length + self._before + self._after) * SLICE
        found = []
        for _ in range(SLICE):
            self._id = self._id % 65_535 + 1
            found += [self._first, self._length, self._before, self._id.to_bytes(2), self._after]
        return b"".join(found)

    def run(self, count: int) -> None:
        """Let so many messages pass."""
        sent = came = acknowledged = 0
        reading, writing = self.reader, self.writer
        while came < count or (self._qos and acknowledged < count):
            behind = came if not self._qos else min(came, acknowledged)
            while sent < count and sent - behind <= IN_FLIGHT - SLICE:
                writing.socket.sendall(self.slice())
                sent += SLICE
            ready, _, _ = select.select([reading.socket, writing.socket], [], [], 60)
            if not ready:
                raise SystemExit(f"{came} of {count} messages came, {acknowledged} acknowledged")
            if reading.socket in ready:
                acks = []
                for kind, start, _ in reading.packets():
                    if kind & 0xF0 == PUBLISH:
                        came += 1
                        if kind & 0x06:
                            number = start + self._head
                            acks.append(b"\x40\x02" + reading.data[number : number + 2])
                if acks:
                    reading.socket.sendall(b"".join(acks))
            if writing.socket in ready:
                acknowledged += sum(kind == PUBACK for kind, _, _ in writing.packets())


def idle(address: str, count: int) -> None:
    """Open connections that do nothing."""
    lines = [Line(address, b"idle-%d" % number) for number in range(count)]
    print(json.dumps({"connections": len(lines)}), flush=True)
    sys.stdin.read()


def main() -> None:
    """Run one load."""
    mode, address, *rest = sys.argv[1:]
    if mode == "idle":
        idle(address, int(rest[0]))
        return
    topic, count, size, qos = rest
    load = Through(address, topic.encode(), int(size), int(qos))
    began = time.perf_counter()
    load.run(int(count))
    print(json.dumps({"messages": int(count), "seconds": time.perf_counter() - began}))


if __name__ == "__main__":
    main()
