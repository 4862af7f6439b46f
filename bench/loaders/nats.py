"""Load through a bare socket that speaks to NATS JetStream: as little work here as can be.

    python -m bench.loaders.nats publish HOST:PORT STREAM COUNT BYTES
    python -m bench.loaders.nats deliver HOST:PORT STREAM COUNT WINDOW

Each publish is acknowledged by the stream, a thousand in flight; deliveries are acknowledged one by
one. Prints the messages and the seconds they took.
"""

import json
import socket
import sys
import time

IN_FLIGHT = 1_000
SLICE = 100
INBOX = "_INBOX.bench"


class Line:
    """One connection."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._held = bytearray()
        self.socket.sendall(
            b'CONNECT {"verbose":false,"pedantic":false}\r\nSUB %b 1\r\n' % INBOX.encode()
        )

    def ask(self, subject: str, request: object) -> dict[str, object]:
        """A request to JetStream, and its answer."""
        body = json.dumps(request).encode()
        head = f"PUB {subject} {INBOX} {len(body)}\r\n".encode()
        self.socket.sendall(head + body + b"\r\n")
        while True:
            for _, payload in self.messages():
                answer: dict[str, object] = json.loads(payload)
                if "error" in answer:
                    raise SystemExit(f"{subject} was refused: {answer}")
                return answer

    def messages(self) -> list[tuple[bytes, bytes]]:
        """What came: where to answer, and what it says."""
        piece = self.socket.recv(1 << 18)
        if not piece:
            raise SystemExit("the server hung up")
        self._held += piece
        found: list[tuple[bytes, bytes]] = []
        held, at = bytes(self._held), 0
        while (end := held.find(b"\r\n", at)) >= 0:
            words = held[at:end].split()
            if words[0] != b"MSG":
                if words[0] == b"PING":
                    self.socket.sendall(b"PONG\r\n")
                at = end + 2
                continue
            size = int(words[-1])
            if len(held) < end + 4 + size:
                break
            reply = words[3] if len(words) == 5 else b""
            found.append((reply, held[end + 2 : end + 2 + size]))
            at = end + 4 + size
        self._held = bytearray(held[at:])
        return found


def publish(line: Line, stream: str, count: int, size: int) -> None:
    """Publish, each message acknowledged by the stream."""
    line.ask(
        f"$JS.API.STREAM.CREATE.{stream}",
        {"name": stream, "subjects": [stream], "storage": "file", "num_replicas": 1},
    )
    some = (f"PUB {stream} {INBOX} {size}\r\n".encode() + b"x" * size + b"\r\n") * SLICE
    sent = confirmed = 0
    while confirmed < count:
        while sent < count and sent - confirmed <= IN_FLIGHT - SLICE:
            line.socket.sendall(some)
            sent += SLICE
        for _, payload in line.messages():
            if b'"error"' in payload:
                raise SystemExit(f"a publish was refused: {payload!r}")
            confirmed += 1


def deliver(line: Line, stream: str, count: int, window: int) -> None:
    """Consume and acknowledge."""
    line.socket.sendall(b"SUB bench.deliveries 2\r\n")
    config = {
        "durable_name": "bench",
        "deliver_subject": "bench.deliveries",
        "ack_policy": "explicit",
        "max_ack_pending": window,
    }
    request = {"stream_name": stream, "config": config}
    body = json.dumps(request).encode()
    head = f"PUB $JS.API.CONSUMER.DURABLE.CREATE.{stream}.bench {INBOX} {len(body)}\r\n"
    line.socket.sendall(head.encode() + body + b"\r\n")
    seen = 0
    while seen < count:
        acks = [b"PUB %b 4\r\n+ACK\r\n" % reply for reply, _ in line.messages() if reply]
        seen += len(acks)
        line.socket.sendall(b"".join(acks))


def main() -> None:
    """Run one load."""
    mode, address, stream, count, number = sys.argv[1:]
    line = Line(address)
    began = time.perf_counter()
    run = publish if mode == "publish" else deliver
    run(line, stream, int(count), int(number))
    print(json.dumps({"messages": int(count), "seconds": time.perf_counter() - began}))


if __name__ == "__main__":
    main()
