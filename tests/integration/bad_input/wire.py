"""A connection that can say anything, and a witness that notices when others are disturbed."""

import contextlib
import json
import os
import socket
import threading
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mainstem.model.records.record import Record, build_batch
from mainstem.testing.local_node import LocalNode
from mainstem.wire.kafka import codec
from mainstem.wire.kafka.messages.api_versions import ApiVersionsRequest
from mainstem.wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
PRODUCE_VERSION = 9


class Raw:
    """One TCP connection, used badly or well."""

    def __init__(
        self, address: str, timeout_s: float = 10, receive_bytes: int | None = None
    ) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.socket()
        self.socket.settimeout(timeout_s)
        if receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.connect((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> bool:
        """Whether the other side took it all."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def read(self, size: int) -> bytes:
        """So many bytes, or fewer where the other side closed."""
        data = bytearray()
        with contextlib.suppress(ConnectionResetError):
            while len(data) < size and (piece := self.socket.recv(size - len(data))):
                data += piece
        return bytes(data)

    def read_all(self) -> bytes:
        """What comes until the other side closes; a time-out means it did not close."""
        data = bytearray()
        with contextlib.suppress(ConnectionResetError):
            while piece := self.socket.recv(65_536):
                data += piece
        return bytes(data)

    def is_closed(self, within_s: float = 5) -> bool:
        """Whether the other side closes soon, whatever it says before."""
        self.socket.settimeout(within_s)
        try:
            self.read_all()
        except TimeoutError:
            return False
        return True

    def frame(self) -> bytes | None:
        """The next answer without its length; None where the other side closed instead."""
        head = self.read(4)
        if len(head) < 4:
            return None
        return self.read(int.from_bytes(head, "big"))

    def call(self, api_key: int, version: int, request: Any) -> Any:
        """An honest request and its answer."""
        self._correlation += 1
        data = encoded(api_key, version, request, self._correlation)
        assert self.send(data), "closed while sending"
        answer = self.frame()
        assert answer is not None, "closed without an answer"
        correlation, body = codec.decode_response_header(api_key, version, answer, 0, len(answer))
        assert correlation == self._correlation
        return codec.decode_response(api_key, version, answer, body, len(answer))

    def produce(
        self, topic: str, records: bytes, *, partition: int = 0, acks: int = -1
    ) -> tuple[int, int]:
        """(error code, base offset) for records as they stand."""
        request = ProduceRequest(
            acks=acks,
            timeout_ms=10_000,
            topic_data=[
                TopicProduceData(
                    name=topic,
                    partition_data=[PartitionProduceData(index=partition, records=records)],
                )
            ],
        )
        answer = self.call(PRODUCE, PRODUCE_VERSION, request)
        part = answer.responses[0].partition_responses[0]
        return part.error_code, part.base_offset


def encoded(api_key: int, version: int, request: Any, correlation: int = 7) -> bytes:
    """A whole honest request."""
    chunks: list[Any] = codec.encode_request_frame(api_key, version, correlation, "raw", request)
    return b"".join(bytes(chunk) for chunk in chunks)


def header(api_key: int, version: int, client: bytes = b"raw", correlation: int = 7) -> bytes:
    """A request header (without tags)."""
    head = api_key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True)
    return head + correlation.to_bytes(4, "big") + len(client).to_bytes(2, "big") + client


def framed(data: bytes) -> bytes:
    """The data with its length in front."""
    return len(data).to_bytes(4, "big") + data


def batch_of(*values: bytes, key: bytes | None = b"k", codec: int = 0) -> bytearray:
    """An honest batch."""
    now_ms = int(time.time() * 1000)
    return build_batch([Record(0, now_ms, key, value) for value in values], codec=codec)


def rss_bytes(node: LocalNode) -> int:
    """Resident memory of the node."""
    pages = int(Path(f"/proc/{node.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def open_files(node: LocalNode) -> int:
    """How many files and sockets the node holds."""
    return sum(1 for _ in Path(f"/proc/{node.pid}/fd").iterdir())


class PeakRss:
    """The largest resident memory seen while the block runs."""

    def __init__(self, node: LocalNode) -> None:
        self._node = node
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.before = self.peak = rss_bytes(node)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def growth(self) -> int:
        """By how much it grew at the most."""
        return self.peak - self.before

    def _watch(self) -> None:
        while not self._done.wait(0.005):
            self.peak = max(self.peak, rss_bytes(self._node))


class Witness:
    """An honest client on connections of its own: stores and reads all the while."""

    def __init__(self, node: LocalNode) -> None:
        self._node = node
        put = urllib.request.Request(f"http://{node.http}/v1/topics/witness", method="PUT")
        urllib.request.urlopen(put, timeout=10).close()
        self._kafka = Raw(node.kafka)
        self._stored = 0
        self.slowest_s = 0.0

    def close(self) -> None:
        """Hang up."""
        self._kafka.socket.close()

    def check(self) -> None:
        """The node still does what it should, on this old connection and on new ones."""
        started = time.monotonic()
        error, offset = self._kafka.produce("witness", bytes(batch_of(b"%d" % self._stored)))
        self.slowest_s = max(self.slowest_s, time.monotonic() - started)
        assert (error, offset) == (0, self._stored), (error, offset, self._stored)
        self._stored += 1
        with Raw(self._node.kafka) as fresh:
            assert fresh.call(API_VERSIONS, 3, ApiVersionsRequest("raw", "1")).error_code == 0
        shown = self._http(f"/v1/topics/witness/messages?offset={offset}")
        assert [message["value"] for message in shown] == [str(offset)]
        assert self._http("/health")["is_healthy"] is True

    def _http(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://{self._node.http}{path}", timeout=10) as answer:
            return json.load(answer)
