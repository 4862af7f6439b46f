"""Fetches that wait are bounded in number: one more is answered at once, with nothing."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from mainstem.model.ids import PartitionIndex, StreamId, TopicId
from mainstem.model.limits import PARKED_FETCHES_MAX
from mainstem.protocols.kafka.call import Call, Peer
from mainstem.protocols.kafka.fetch_sessions import FetchSessions
from mainstem.protocols.kafka.handlers.records.fetch import Fetch
from mainstem.telemetry.metrics import Metrics
from mainstem.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic


class EmptyStream:
    """A stream that nobody has written to."""

    id = StreamId(TopicId(bytes(16)), PartitionIndex(0))
    topic = "t"
    closed = lapsed = None
    epoch = start_offset = next_offset = committed = last_stable = 0

    def __init__(self) -> None:
        self.waiters: list[Callable[[], None]] = []

    def read(self, offset: int, **_limits: object) -> None:
        assert offset == 0

    def add_waiter(self, wake: Callable[[], None]) -> None:
        self.waiters.append(wake)

    def remove_waiter(self, wake: Callable[[], None]) -> None:
        self.waiters.remove(wake)

    # What a fetch asks of the streams of a node

    def reader(self, _topic: str, _partition: int) -> "EmptyStream":
        return self


class Everything:
    """Rights of somebody who may do everything."""

    version = 1

    def need(self, *_what: object) -> None: ...


def fetch_of_one_byte(
    metrics: Metrics, answer: Callable[[], None], *, max_wait_ms: int
) -> tuple[Fetch, EmptyStream]:
    """A fetch that has started, of a stream that has nothing for it."""
    stream: Any = EmptyStream()
    rights: Any = Everything()
    peer = Peer("h", 1, "h", 2)
    peer.rights = rights
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        topics=[FetchTopic(topic="t", partitions=[partition])],
        session_id=0,
        session_epoch=-1,
    )
    call = Call(1, 12, "app", peer, stream)
    fetch = Fetch(stream, call, 7, request, lambda *_reply: answer(), metrics)
    fetch.start(FetchSessions(lambda: 1), asyncio.get_running_loop())
    return fetch, stream


@pytest.mark.parametrize(
    ("parked", "is_answered"),
    [(0, False), (PARKED_FETCHES_MAX - 1, False), (PARKED_FETCHES_MAX, True)],
)
async def test_a_fetch_beyond_the_limit_is_answered_at_once(
    parked: int, *, is_answered: bool
) -> None:
    metrics = Metrics()
    metrics.fetches_parked = parked
    answered = asyncio.Event()
    fetch, stream = fetch_of_one_byte(metrics, answered.set, max_wait_ms=60_000)
    assert answered.is_set() == is_answered
    assert bool(stream.waiters) != is_answered
    assert metrics.fetches_parked == parked + (not is_answered)
    fetch.cancel()
    assert metrics.fetches_parked == parked
