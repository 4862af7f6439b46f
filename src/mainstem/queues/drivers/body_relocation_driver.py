"""Copies bodies that abandoned queues still need, so that the start of a stream can be deleted.

A single message that is not consumed would pin all later records of its stream. Where the pinned
bytes exceed a limit and few of them are needed, the needed bodies are appended to the end of the
data stream of their virtual host. A header records the original exchange: routers skip such
records, and consumers do not see the header.
"""

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

from mainstem.model.errors import MainstemError
from mainstem.model.ids import StreamId
from mainstem.model.limits import MIB
from mainstem.model.message import Message
from mainstem.model.records.record import Record, build_batch
from mainstem.queues.drivers.queues_driver import QueuesDriver
from mainstem.queues.drivers.virtual_host_driver import VirtualHost
from mainstem.queues.publishing.exchange_stream_driver import ExchangeStream
from mainstem.queues.routing.exchange import DEFAULT_EXCHANGE
from mainstem.queues.routing.message_routing import MOVED_HEADER
from mainstem.queues.shards.shard_driver import QueueShardDriver
from mainstem.queues.storage.ledger import QueuedItem
from mainstem.streams.writer.stream_driver import StreamWriter

PINNED_BYTES_MAX = 1024 * MIB
# Bodies are moved only if at most this share of the pinned bytes is needed.
_NEEDED_SHARE_MAX = 0.25
_MOVED_AT_ONCE = 1_000
_PASSED_OVER = 60


class PinnedMessage(NamedTuple):
    """A message whose body pins older records."""

    shard: QueueShardDriver
    queue: int
    item: QueuedItem


class BodyRelocator:
    """Appends old bodies again so that the start of a stream can be deleted."""

    def __init__(self, driver: QueuesDriver, pinned_bytes_max: int = PINNED_BYTES_MAX) -> None:
        self._driver = driver
        self.pinned_bytes_max = pinned_bytes_max
        # Streams that were checked without result, and for how many rounds they are skipped.
        self._futile_rounds: dict[StreamId, int] = {}

    async def run_once(self) -> int:
        """Check every stream once; returns the number of moved bodies."""
        moved = 0
        for host in list(self._driver.hosts.by_name.values()):
            for stream in list(host.exchanges.all_streams()):
                boundary, held_bytes = self._held(stream.writer)
                if boundary is not None and not self._is_futile(stream.writer.id):
                    moved += await self._move(host, stream, boundary, held_bytes)
        return moved

    def _is_futile(self, stream: StreamId) -> bool:
        """Whether a stream is skipped in this round."""
        left = self._futile_rounds.get(stream, 0)
        if left:
            self._futile_rounds[stream] = left - 1
        return left > 0

    def _held(self, writer: StreamWriter) -> tuple[int | None, int]:
        """The offset before which bodies are to be moved, if any, and the bytes before it."""
        segments = [segment for held in writer.ranges for segment in held.segments]
        if sum(segment.size for segment in segments) <= self.pinned_bytes_max:
            return None, 0
        recent_bytes = 0
        for at in range(len(segments) - 1, 0, -1):
            recent_bytes += segments[at].size
            if recent_bytes >= self.pinned_bytes_max // 2:
                return segments[at].base_offset, sum(each.size for each in segments[:at])
        return None, 0

    async def _move(
        self, host: VirtualHost, stream: ExchangeStream, boundary: int, held_bytes: int
    ) -> int:
        found = list(self._in_the_way(stream, boundary))
        needed_bytes = sum(each.item.pointer.size_bytes for each in found)
        writers = [each.writer for each in host.exchanges.streams.get(DEFAULT_EXCHANGE, ())]
        if needed_bytes > _NEEDED_SHARE_MAX * held_bytes or not writers:
            self._futile_rounds[stream.writer.id] = _PASSED_OVER
            return 0
        moved = 0
        for start in range(0, len(found), _MOVED_AT_ONCE):
            moved += await self._append(found[start : start + _MOVED_AT_ONCE], stream, writers[0])
        return moved

    def _in_the_way(self, stream: ExchangeStream, boundary: int) -> Iterator[PinnedMessage]:
        wanted = stream.writer.id
        for shard in self._driver.shards:
            for _, queue in shard.shard:
                ledger = queue.body.ledger
                items = [ledger.messages] if ledger.is_fanout else []
                items += [lane.items for lane in ledger.lanes.values() if not ledger.is_fanout]  # type: ignore[misc]
                for each in items:
                    for item in each.values():
                        if item.stream == wanted and item.pointer.offset < boundary:
                            yield PinnedMessage(shard, queue.body.id, item)

    async def _append(
        self, batch: list[PinnedMessage], stream: ExchangeStream, writer: StreamWriter
    ) -> int:
        bodies = self._driver.context.bodies
        read = [(held, bodies.read(held.item.stream, held.item.pointer.offset)) for held in batch]
        kept = [(held, message) for held, message in read if message is not None]
        if not kept:
            return 0
        now_ms = self._driver.context.clock.now_ms()
        records = [_moved(message, stream.exchange, now_ms) for _, message in kept]
        until = writer.append(build_batch(records))
        await _committed(writer, until)
        base = until - len(records)
        places: dict[tuple[QueueShardDriver, int], dict[int, int]] = {}
        for offset, (held, _) in enumerate(kept, start=base):
            places.setdefault((held.shard, held.queue), {})[held.item.sequence] = offset
        for (shard, number), offsets in places.items():
            queue = shard.shard.queue(number)
            if queue is not None and shard.is_open:
                shard.take(number, queue.on_moved(writer.id, offsets, shard.now_ms()))
        return len(kept)


def _moved(message: Message, exchange: str, now_ms: int) -> Record:
    """The record of a moved body; a header records the original exchange."""
    if not message.headers or message.headers[-1][0] != MOVED_HEADER:
        mark = (MOVED_HEADER, exchange.encode())
        message = message._replace(headers=(*message.headers, mark))
    return Record(0, now_ms, message.key, message.value, message.headers)


async def _committed(writer: StreamWriter, until: int) -> None:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settled(error: MainstemError | None) -> None:
        if not done.done():
            done.set_result(None) if error is None else done.set_exception(error)

    if not writer.when_committed(until, settled):
        await done
