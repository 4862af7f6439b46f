"""A connection that owes time is not read from, however much it owes and whatever it does."""

import heapq
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.clock import ManualClock

from mainstem.protocols.kafka.call import ApiHandler, Call, Peer
from mainstem.protocols.kafka.session import KafkaService, KafkaSession
from mainstem.security.quotas import REQUESTS, USER, QuotaEntry, Quotas, entity_of
from mainstem.telemetry.metrics import Metrics
from mainstem.wire.kafka import codec
from mainstem.wire.kafka.messages.list_groups import ListGroupsRequest, ListGroupsResponse

LIST_GROUPS = 16
FRAME = b"".join(
    cast("list[bytes]", codec.encode_request_frame(LIST_GROUPS, 1, 1, "app", ListGroupsRequest()))
)


class Counter:
    """The part of the counter that a session looks at when it is made."""

    streams = None
    transactions = None


class FakeConnection:
    """A socket that says whether it is read from, and time that passes when it is told to."""

    def __init__(self, rate: float) -> None:
        self.clock = ManualClock(0.0)
        self.quotas = Quotas(self.clock)
        self.limit(rate)
        self.is_read = True
        self.answers = 0
        self.served = 0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        counter: Any = Counter()
        served = {LIST_GROUPS: ApiHandler(self._list_groups, 0, 5)}
        service = KafkaService(counter, served, Metrics(), 1_000)
        peer = Peer("10.0.0.1", 1, "h", 2, quotas=self.quotas)
        self.session = KafkaSession(self, peer, service, self, self.fetch)

    def limit(self, rate: float) -> None:
        self.quotas.load([QuotaEntry(entity_of([(USER, None)]), {REQUESTS: rate})])

    def burst(self, count: int) -> None:
        data = bytearray(FRAME * count)
        self.session.receive(data, memoryview(data), 0, len(data))

    def pass_to_next(self) -> None:
        at, _, call = heapq.heappop(self._due)
        self.clock.now_s = at
        call()

    def _list_groups(self, _call: Call, _request: ListGroupsRequest) -> ListGroupsResponse:
        self.served += 1
        return ListGroupsResponse()

    # What a session needs of a sender and of a runner

    def send(self, chunks: Sequence[Any]) -> None:
        self.answers += 1

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
        call()
        return None

    def later(self, delay_ms: int, call: Callable[[], None]) -> object:
        heapq.heappush(self._due, (self.clock.now_s + delay_ms / 1000, len(self._due), call))
        return None


def wait(connection: FakeConnection) -> float:
    """Until it is read from again; how long that took in seconds."""
    start = connection.clock.now_s
    while not connection.is_read:
        connection.pass_to_next()
    return connection.clock.now_s - start


@settings(max_examples=150, deadline=None)
@given(st.floats(0.005, 1_000), st.lists(st.integers(1, 60), min_size=1, max_size=30))
def test_who_sends_whenever_it_is_read_from_gets_no_more_than_its_rate(
    rate: float, bursts: list[int]
) -> None:
    connection = FakeConnection(rate)
    for count in bursts:
        wait(connection)
        # One burst of a second, and what came in one go before the last wait was over.
        assert connection.served <= rate * (connection.clock.now_s + 1.0) * 1.001 + 1
        connection.burst(count)


def test_a_debt_longer_than_clients_are_told_is_waited_for_all_the_same() -> None:
    connection = FakeConnection(0.1)
    connection.burst(21)
    assert 200 < wait(connection) < 235


def test_a_limit_that_is_raised_lets_a_debtor_go_on_before_long() -> None:
    connection = FakeConnection(0.001)
    connection.burst(100)
    connection.limit(1_000_000.0)
    assert wait(connection) < 31
