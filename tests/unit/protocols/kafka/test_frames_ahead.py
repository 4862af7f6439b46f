"""Frames behind a request that is being served are few bytes; the rest stays in the socket."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import pytest

from mainstem.model.limits import CONNECTION_BUFFER_BYTES, CONNECTION_WRITE_BYTES_HIGH, MIB
from mainstem.protocols.frame_memory import FrameMemory
from mainstem.protocols.kafka.call import ApiHandler, Call, Peer
from mainstem.protocols.kafka.response_queue import Replies
from mainstem.protocols.kafka.session import KafkaService, KafkaSession
from mainstem.protocols.session import Overloaded
from mainstem.telemetry.metrics import Metrics
from mainstem.wire.kafka import codec
from mainstem.wire.kafka.messages.list_groups import ListGroupsRequest, ListGroupsResponse

LIST_GROUPS = 16


def frame(client_id: str = "app") -> bytes:
    chunks = codec.encode_request_frame(LIST_GROUPS, 1, 1, client_id, ListGroupsRequest())
    return b"".join(cast("list[bytes]", chunks))


class Counter:
    """The part of the broker that a session looks at when it is made."""

    streams = None
    transactions = None


class FakeConnection:
    """A socket that says whether it is read from, and a handler that ends when it is told to."""

    def __init__(self, memory_bytes: int = 512 * MIB) -> None:
        self.is_read = True
        self.sent = 0
        self.metrics = Metrics()
        self.memory = FrameMemory(memory_bytes, self.metrics)
        self._done: list[Callable[[Any, BaseException | None], None]] = []
        broker: Any = Counter()
        served = {LIST_GROUPS: ApiHandler(self._list_groups, 0, 5)}
        service = KafkaService(broker, served, self.metrics, 100 * MIB, self.memory)
        self.session = KafkaSession(self, Peer("h", 1, "h", 2), service, self, self.fetch)

    def receive(self, data: bytes) -> tuple[int, int]:
        buf = bytearray(data)
        return self.session.receive(buf, memoryview(buf), 0, len(buf))

    def is_open(self) -> bool:
        return self.is_read

    def finish(self) -> None:
        """The handler at work is done."""
        self._done.pop(0)(ListGroupsResponse(), None)

    async def _list_groups(self, _call: Call, _request: ListGroupsRequest) -> ListGroupsResponse:
        raise AssertionError("carried out by hand")

    # What a session needs of a sender and of a runner

    def send(self, chunks: Sequence[Any]) -> None:
        self.sent += 1

    def close(self) -> None:
        raise AssertionError("nothing here is worth closing a connection")

    def pause(self) -> None:
        assert self.is_read
        self.is_read = False

    def resume(self) -> None:
        assert not self.is_read
        self.is_read = True

    def run(self, work: Awaitable[Any], done: Any) -> Callable[[], None]:
        cast("Any", work).close()
        self._done.append(done)
        return lambda: None

    def fetch(self, fetch: Any) -> None:
        raise AssertionError("nothing is fetched")

    def soon(self, call: Callable[[], None]) -> object:
        call()
        return None

    def later(self, delay_ms: int, call: Callable[[], None]) -> object:
        raise AssertionError("nobody owes time")


def test_a_large_frame_behind_a_request_at_work_is_not_read() -> None:
    connection = FakeConnection()
    begun = frame() + (8 * MIB).to_bytes(4, "big") + b"the beginning"
    start, need = connection.receive(begun)
    assert (start, need) == (len(frame()), 8 * MIB + 4)
    assert not connection.is_read

    connection.finish()
    assert connection.is_read


def test_small_frames_behind_a_request_at_work_are_read_up_to_a_limit_in_bytes() -> None:
    connection = FakeConnection()
    connection.receive(frame())
    ahead = frame("a" * 4_000)
    count = 0
    while connection.is_open():
        connection.receive(ahead)
        count += 1
    assert (
        CONNECTION_BUFFER_BYTES < count * len(ahead) + 8 < CONNECTION_BUFFER_BYTES + 2 * len(ahead)
    )
    assert connection.memory.used_bytes == count * (len(ahead) - 4)

    for _ in range(count + 1):
        connection.finish()
    assert [connection.is_read, connection.memory.used_bytes] == [True, 0]


def test_a_large_frame_with_nothing_before_it_is_read() -> None:
    connection = FakeConnection()
    connection.receive((8 * MIB).to_bytes(4, "big") + b"the beginning")
    assert connection.is_read


def test_all_connections_together_keep_no_more_than_the_node_allows() -> None:
    connection = FakeConnection(memory_bytes=10_000)
    connection.receive(frame())
    connection.receive(frame("a" * 4_000))
    connection.receive(frame("a" * 4_000))
    with pytest.raises(Overloaded):
        connection.receive(frame("a" * 4_000))
    assert connection.metrics.frame_memory_refusals == 1
    assert connection.memory.is_near_limit is False

    connection.session.closed()
    assert connection.memory.used_bytes == 0


def test_large_answers_behind_one_that_is_not_known_are_counted() -> None:
    replies = Replies(lambda _: None, lambda call: call())
    first = replies.reserve()
    replies.answer([b"x" * 100], 100)
    second = replies.reserve()
    replies.settle(second, [b"x" * 50], 50)
    assert replies.held_bytes == 150
    replies.settle(first, [b"1"])
    assert replies.held_bytes == 0


def test_a_connection_with_large_answers_that_wait_is_not_read() -> None:
    connection = FakeConnection()
    connection.receive(frame())
    replies = connection.session._replies
    replies.answer([b""], CONNECTION_WRITE_BYTES_HIGH + 1)
    connection.receive(b"")
    assert not connection.is_read
    connection.finish()
    assert connection.is_read
