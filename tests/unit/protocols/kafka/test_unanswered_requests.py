"""A connection with too many unanswered requests is read from again when answers have gone out."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from tests.unit.protocols.kafka.test_produce_path import Counter, MemoryStreams, frame

from mainstem.model.limits import CONNECTION_PENDING_REPLIES_MAX
from mainstem.protocols.kafka.call import ApiHandler, Call, Peer
from mainstem.protocols.kafka.session import KafkaService, KafkaSession
from mainstem.telemetry.metrics import Metrics

PRODUCE = 0
VERSION = 9


class FakeConnection:
    """A socket that says whether it is read from, on a loop that turns when it is told to."""

    def __init__(self) -> None:
        self.streams = MemoryStreams(commit_at_once=False)
        self.is_read = True
        self.sent = 0
        self._soon: list[Callable[[], None]] = []
        counter: Any = Counter(self.streams)
        service = KafkaService(counter, {PRODUCE: ApiHandler(_never, 3, 13)}, Metrics(), 1_000_000)
        self.session = KafkaSession(self, Peer("h", 1, "h", 2), service, self, self.fetch)

    def produce(self, number: int) -> None:
        data = bytearray(frame(number, [0], version=VERSION, acks=-1))
        self.session.receive(data, memoryview(data), 0, len(data))

    def turn(self) -> None:
        due, self._soon = self._soon, []
        for call in due:
            call()

    # What a session needs of a sender and of a runner

    def send(self, chunks: Sequence[Any]) -> None:
        self.sent += len(chunks)

    def close(self) -> None:
        raise AssertionError("nothing here is worth closing a connection")

    def pause(self) -> None:
        assert self.is_read
        self.is_read = False

    def resume(self) -> None:
        assert not self.is_read
        self.is_read = True

    def run(self, work: Awaitable[Any], done: Any) -> Callable[[], None]:
        raise AssertionError("nothing here takes time")

    def fetch(self, fetch: Any) -> None:
        raise AssertionError("nothing is fetched")

    def soon(self, call: Callable[[], None]) -> object:
        self._soon.append(call)
        return None

    def later(self, delay_ms: int, call: Callable[[], None]) -> object:
        raise AssertionError("nobody owes time")


def _never(_call: Call, _request: Any) -> Any:
    raise AssertionError("produce requests have a path of their own")


@pytest.fixture
def full() -> FakeConnection:
    """More requests than may be unanswered, none of them committed."""
    connection = FakeConnection()
    for number in range(CONNECTION_PENDING_REPLIES_MAX + 1):
        assert connection.is_read
        connection.produce(number)
    return connection


def test_too_many_unanswered_requests_stop_the_reading(full: FakeConnection) -> None:
    assert not full.is_read
    assert full.sent == 0


def test_reading_goes_on_when_the_answers_have_gone_out(full: FakeConnection) -> None:
    full.streams.partitions[0].commit()
    full.turn()

    assert full.sent == CONNECTION_PENDING_REPLIES_MAX + 1
    assert full.is_read
