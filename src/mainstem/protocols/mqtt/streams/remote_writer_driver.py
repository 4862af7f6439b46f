"""Forwards messages to streams of other nodes: in order, one batch at a time per stream.

Guarantees: messages of one stream are stored in their order, or refused; a message is reported as
stored only after the writing node has acknowledged it; the queue has a limit. A message that failed
with a retriable error is repeated by its publisher: messages queued behind it fail with it, since
they would otherwise be stored before it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from mainstem.broker.api.broker import Settled, Streams
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.model.limits import KIB, MIB
from mainstem.model.message import Message
from mainstem.model.records.record import build_batch

BATCH_BYTES_TARGET: Final = 512 * KIB
BATCH_MESSAGES_MAX: Final = 1_000
WAITING_BYTES_MAX: Final = 64 * MIB  # of one stream
_RECORD_OVERHEAD_BYTES: Final = 64

Noted = tuple[Message, Settled | None]


class RemoteStreamWriter:
    """Forwards messages to the nodes that write their streams, in order.

    Args:
        streams: the log.
        withdraw: takes back acknowledged messages of a stream that were not yet passed to ``put``.
    """

    def __init__(self, streams: Streams, withdraw: Callable[[str, int], list[Noted]]) -> None:
        self._streams = streams
        self._withdraw = withdraw
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def has(self, topic: str, partition: int) -> bool:
        """Whether messages wait for a stream; later ones have to wait behind them."""
        return (topic, partition) in self._lanes

    def put(self, topic: str, partition: int, noted: list[Noted]) -> None:
        """Queue messages; if one exceeds the limit, it and those after it are refused."""
        lane = self._lanes.get((topic, partition))
        if lane is None:
            lane = self._lanes[topic, partition] = _Lane()
            self._start(self._pass_on(topic, partition, lane))
        for number, each in enumerate(noted):
            if not lane.add(each):
                settle_all(noted[number:], _overloaded(topic))
                return

    def close(self) -> None:
        """Stop forwarding."""
        for task in self._tasks:
            task.cancel()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, topic: str, partition: int, lane: "_Lane") -> None:
        singles: deque[list[Noted]] = deque()
        try:
            while piece := singles.popleft() if singles else lane.take():
                failure = await self._append(topic, partition, piece)
                if failure is not None and failure.retriable:
                    behind = [each for single in singles for each in single]
                    singles.clear()
                    # All are removed before the first is settled: messages added from then on,
                    # such as the will of a client whose connection is closed, are not behind them.
                    behind += lane.withdraw() + self._withdraw(topic, partition)
                    settle_all(piece + behind, failure)
                elif failure is not None and len(piece) > 1:
                    # One message that cannot be stored must not make the others fail.
                    singles.extend([each] for each in piece)
                else:
                    settle_all(piece, failure)
        finally:
            del self._lanes[topic, partition]
            unsent = [each for single in singles for each in single]
            unsent += lane.waiting
            settle_all(unsent, Unavailable(ErrorCode.SHUTTING_DOWN, "the node is stopping"))

    async def _append(self, topic: str, partition: int, piece: list[Noted]) -> MainstemError | None:
        batch = build_batch([message.to_record() for message, _ in piece])
        try:
            await self._streams.append(topic, partition, batch)
        except MainstemError as error:
            return error
        return None


class _Lane:
    """The queue of one stream."""

    def __init__(self) -> None:
        self.waiting: deque[Noted] = deque()
        self._bytes = 0

    def add(self, each: Noted) -> bool:
        size = size_of(each[0])
        if self._bytes + size > WAITING_BYTES_MAX:
            return False
        self._bytes += size
        self.waiting.append(each)
        return True

    def take(self) -> list[Noted]:
        piece: list[Noted] = []
        size = 0
        while self.waiting and len(piece) < BATCH_MESSAGES_MAX:
            added = size_of(self.waiting[0][0])
            if piece and size + added > BATCH_BYTES_TARGET:
                break
            piece.append(self.waiting.popleft())
            size += added
        self._bytes -= size
        return piece

    def withdraw(self) -> list[Noted]:
        """Remove the acknowledged messages; others are not repeated by a client, and stay."""
        taken, kept = split_answered(self.waiting)
        self.waiting = deque(kept)
        self._bytes -= sum(size_of(message) for message, _ in taken)
        return taken


def size_of(message: Message) -> int:
    """The approximate size of a message in a batch."""
    key, value, headers, _ = message
    size = _RECORD_OVERHEAD_BYTES + len(value or b"") + len(key or b"")
    for name, text in headers:
        size += len(name) + len(text or b"")
    return size


def split_answered(noted: Iterable[Noted]) -> tuple[list[Noted], list[Noted]]:
    """Split messages into those with an acknowledgement callback and others."""
    answered: list[Noted] = []
    others: list[Noted] = []
    for each in noted:
        (others if each[1] is None else answered).append(each)
    return answered, others


def settle_all(piece: list[Noted], error: MainstemError | None) -> None:
    """Settle all messages."""
    for _, settled in piece:
        if settled is not None:
            settled(error)


def _overloaded(topic: str) -> Unavailable:
    return Unavailable(ErrorCode.OVERLOADED, "too many messages wait", subject=topic)
