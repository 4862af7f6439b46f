"""Messages for streams that other nodes write: passed on in order, one batch at a time per stream.

Promises: what is noted for one stream is stored in that order, or refused; nobody is told "stored"
before the node that writes it has said so; what waits has a limit.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any, Final

from mainstem.broker.api import Settled, Streams
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.model.limits import KIB, MIB
from mainstem.model.message import Message
from mainstem.model.record import build_batch

BATCH_BYTES_TARGET: Final = 512 * KIB
BATCH_MESSAGES_MAX: Final = 1_000
WAITING_BYTES_MAX: Final = 64 * MIB  # of one stream
_RECORD_OVERHEAD_BYTES: Final = 64

Noted = tuple[Message, Settled | None]


class FarWriter:
    """See the module's text."""

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._lanes: dict[tuple[str, int], _Lane] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def has(self, topic: str, partition: int) -> bool:
        """Whether something waits for a stream: what comes later has to wait behind it."""
        return (topic, partition) in self._lanes

    def put(self, topic: str, partition: int, noted: list[Noted]) -> None:
        """Pass messages on."""
        lane = self._lanes.get((topic, partition))
        if lane is None:
            lane = self._lanes[topic, partition] = _Lane()
            self._start(self._pass_on(topic, partition, lane))
        for each in noted:
            if not lane.add(each):
                tell([each], _overloaded(topic))

    def close(self) -> None:
        """Pass nothing more on."""
        for task in self._tasks:
            task.cancel()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, topic: str, partition: int, lane: "_Lane") -> None:
        try:
            while piece := lane.take():
                failure: MainstemError | None = None
                try:
                    await self._append(topic, partition, piece)
                except MainstemError as error:
                    failure = error
                if failure is not None and len(piece) > 1 and not failure.retriable:
                    await self._one_by_one(topic, partition, piece)
                else:
                    tell(piece, failure)
        finally:
            del self._lanes[topic, partition]
            tell(list(lane.waiting), Unavailable(ErrorCode.SHUTTING_DOWN, "the node stops"))

    async def _one_by_one(self, topic: str, partition: int, piece: list[Noted]) -> None:
        """One that cannot be stored must not take the others with it."""
        for each in piece:
            failure: MainstemError | None = None
            try:
                await self._append(topic, partition, [each])
            except MainstemError as error:
                failure = error
            tell([each], failure)

    async def _append(self, topic: str, partition: int, piece: list[Noted]) -> None:
        batch = build_batch([message.to_record() for message, _ in piece])
        await self._streams.append(topic, partition, batch)


class _Lane:
    """What waits for one stream."""

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


def size_of(message: Message) -> int:
    """About how much a message takes in a batch."""
    key, value, headers, _ = message
    size = _RECORD_OVERHEAD_BYTES + len(value or b"") + len(key or b"")
    for name, text in headers:
        size += len(name) + len(text or b"")
    return size


def tell(piece: list[Noted], error: MainstemError | None) -> None:
    """Tell everybody who waits for these messages."""
    for _, settled in piece:
        if settled is not None:
            settled(error)


def _overloaded(topic: str) -> Unavailable:
    return Unavailable(ErrorCode.OVERLOADED, "too much waits for its writer", subject=topic)
