"""The producer: batches records by partition, sends them to the leaders, reports each result.

Guarantees: records of one partition are stored in the order they were sent; with idempotence (the
default, with acks ``all``) a retry never stores a record twice; every record's delivery ends with
an offset or an error, within ``delivery_timeout_ms``; at most ``buffer_bytes`` are buffered, and
``send`` waits for space; a failed record that was not awaited is reported by ``flush`` and by
leaving the block.
"""

import asyncio
import random
import time
from collections.abc import Generator, Sequence
from types import TracebackType
from typing import Any, Final, Self

from mainstem.client.cluster import Cluster
from mainstem.client.producing.outbox import ProducerBatch, record_size_bytes
from mainstem.client.producing.partitioner import Partitioner
from mainstem.client.producing.produce_call import ProduceOptions
from mainstem.client.producing.producer_ids import ProducerIdAllocator
from mainstem.client.producing.sender import BatchSender, until_done
from mainstem.client.settings import ProducerSettings
from mainstem.client.values import RecordMetadata, TopicPartition
from mainstem.model.errors import ErrorCode, InvalidRequest, Unavailable
from mainstem.model.records import compression
from mainstem.model.records.columns import EncodedRecords
from mainstem.model.records.record import Header, Record

ACKS: Final = {0: 0, 1: 1, -1: -1, "0": 0, "1": 1, "-1": -1, "all": -1}
IN_FLIGHT_IDEMPOTENT_MAX: Final = 5  # a broker remembers that many batches per producer


__all__ = ["Delivery", "Producer", "ProducerSettings"]


class Delivery:
    """What ``send`` returns: await it for the offset of the record, or its error."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: ProducerBatch, index: int) -> None:
        self._batch = batch
        self._index = index

    @property
    def is_done(self) -> bool:
        """Whether the outcome of the record is known."""
        return self._batch.is_done

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        batch = self._batch
        batch.is_observed = True
        if not batch.is_done:
            yield from until_done(batch).__await__()
        return batch.place(self._index)


class Producer:
    """Sends records. An async context manager; leaving it delivers what is buffered.

    Args:
        cluster: where to send; given an address (or several), the producer owns its cluster.
        settings: how to send.
    """

    def __init__(
        self, cluster: Cluster | str | Sequence[str], settings: ProducerSettings | None = None
    ) -> None:
        self.settings = settings or ProducerSettings()
        acks, is_idempotent = check_settings(self.settings)
        self._owns_cluster = not isinstance(cluster, Cluster)
        self._cluster = cluster if isinstance(cluster, Cluster) else Cluster(cluster)
        codec = compression.codec_of(self.settings.compression)
        # The sticky partition needs no secure randomness.
        self._partitioner = Partitioner(random.Random().randrange)  # noqa: S311
        self._sender = BatchSender(
            self._cluster,
            ProduceOptions(acks, codec, self.settings),
            identities=ProducerIdAllocator(self._cluster) if is_idempotent else None,
        )
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # After an error in the block, buffered records get the short time-out.
        await self.close(timeout_ms=None if error is None else 0)

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Sequence[Header] = (),
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Buffers a record; await the result for its offset.

        Raises:
            InvalidRequest: no such partition, or the producer is closed.
            Unavailable: the metadata of the topic is not known in time, or the buffer stays full.
        """
        if self._is_closed:
            raise InvalidRequest(ErrorCode.INVALID_REQUEST, "the producer is closed")
        info = self._cluster.known_topic(topic)
        if info is None:
            info = await self._cluster.retrying(
                lambda: self._cluster.topic(topic), timeout_ms=self.settings.block_timeout_ms
            )
        count = len(info.partitions)
        now = time.monotonic()
        index = self._partitioner.partition(
            topic, count, key=key, wanted=partition, now_ms=now * 1000
        )
        if value is not None and type(value) is not bytes:
            value = bytes(value)
        if key is not None and type(key) is not bytes:
            key = bytes(key)
        kept = tuple(headers)
        size = record_size_bytes(key, value, kept)
        if self._sender.buffered_bytes + size > self.settings.buffer_bytes:
            await self._wait_for_space(size)
        timestamp = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
        if not -1 <= timestamp < 1 << 63:
            raise InvalidRequest(ErrorCode.INVALID_TIMESTAMP, f"timestamp {timestamp}")
        batch, is_full = self._sender.add(
            TopicPartition(topic, index), Record(0, timestamp, key, value, kept), size
        )
        place = len(batch.records) - 1
        if is_full:
            # A caller that never awaits would otherwise keep the loop from sending.
            await asyncio.sleep(0)
        return Delivery(batch, place)

    async def send_and_wait(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Sequence[Header] = (),
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """Sends one record without lingering and returns its offset."""
        delivery = await self.send(
            topic, value, key=key, partition=partition, headers=headers, timestamp_ms=timestamp_ms
        )
        self._sender.send_now()
        return await delivery

    async def send_encoded(self, partition: TopicPartition, records: EncodedRecords) -> None:
        """Buffers records that ``model.columns`` encoded; they are sent as one batch.

        ``flush`` reports their failure.

        Raises:
            InvalidRequest: the producer is closed.
            Unavailable: the buffer stays full.
        """
        if self._is_closed:
            raise InvalidRequest(ErrorCode.INVALID_REQUEST, "the producer is closed")
        size = len(records.body)
        if self._sender.buffered_bytes + size > self.settings.buffer_bytes:
            await self._wait_for_space(size)
        self._sender.add_encoded(partition, records)
        await asyncio.sleep(0)

    async def partitions_of(self, topic: str) -> int:
        """How many partitions a topic has."""
        info = await self._cluster.retrying(
            lambda: self._cluster.topic(topic), timeout_ms=self.settings.block_timeout_ms
        )
        return len(info.partitions)

    async def flush(self) -> None:
        """Waits until every record sent so far is delivered or has failed.

        Raises:
            MainstemError: the first failure that was not awaited.
        """
        self._sender.send_now()
        for batch in list(self._sender.unsettled):
            await until_done(batch)
        self._sender.losses.report()

    async def close(self, timeout_ms: int | None = None) -> None:
        """Delivers what is buffered, for at most ``timeout_ms``, and closes; the rest fails.

        Raises:
            MainstemError: the first failure that was not awaited.
        """
        if self._is_closed:
            return
        self._is_closed = True
        limit_ms = self.settings.delivery_timeout_ms if timeout_ms is None else timeout_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                await self.flush()
        except TimeoutError:
            self._sender.give_up()
        finally:
            await self._sender.close()
            if self._owns_cluster:
                await self._cluster.close()
        if timeout_ms is None:
            self._sender.losses.report()

    async def _wait_for_space(self, size: int) -> None:
        try:
            async with asyncio.timeout(self.settings.block_timeout_ms / 1000):
                await self._sender.wait_for_buffer_space(size)
        except TimeoutError:
            raise Unavailable(
                ErrorCode.OVERLOADED,
                f"{self.settings.buffer_bytes} bytes have waited for "
                f"{self.settings.block_timeout_ms} ms",
                remedy="send more slowly, or give the producer a larger buffer",
            ) from None


def check_settings(settings: ProducerSettings) -> tuple[int, bool]:
    """The number of acknowledgements and whether to be idempotent.

    Raises:
        InvalidRequest: the settings contradict each other.
    """
    if settings.acks not in ACKS:
        raise InvalidRequest(
            ErrorCode.INVALID_ACKS, f"acks {settings.acks!r}", remedy="use 0, 1 or all"
        )
    acks = ACKS[settings.acks]
    is_idempotent = acks == -1 if settings.idempotent is None else settings.idempotent
    if is_idempotent and acks != -1:
        raise InvalidRequest(
            ErrorCode.INVALID_ACKS, "an idempotent producer needs acks all", remedy="use acks all"
        )
    if settings.in_flight_max < 1 or (
        is_idempotent and settings.in_flight_max > IN_FLIGHT_IDEMPOTENT_MAX
    ):
        raise InvalidRequest(
            ErrorCode.INVALID_REQUEST,
            f"in_flight_max {settings.in_flight_max}",
            remedy=f"use 1 to {IN_FLIGHT_IDEMPOTENT_MAX}",
        )
    return acks, is_idempotent
