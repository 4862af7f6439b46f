"""Reads one partition between two offsets, batch by batch, to decode whole columns.

Guarantees: batches are in order, checked against their checksums and uncompressed; control batches
and, unless set otherwise, batches of aborted transactions are omitted; the next response is fetched
while one is processed, and at most two are in memory; if part of the range is gone,
``RecordsTrimmed`` is raised.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

import msgspec

from mainstem.client import errors
from mainstem.client.cluster import Cluster
from mainstem.client.consuming.aborted_batches import AbortedBatchFilter
from mainstem.client.consuming.offset_query import EARLIEST, LATEST, list_offsets
from mainstem.client.values import TopicPartition
from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest
from mainstem.model.records.columns import PlainBatch, RecordColumns, decode_columns, plain_batch
from mainstem.model.records.record import batches_of
from mainstem.wire.kafka.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

TOPIC_IDS_SINCE_VERSION: Final = 13
NO_TOPIC_ID: Final = bytes(16)
EMPTY_ANSWERS_MAX: Final = 3
COLUMN_ROWS: Final = 16_384
COLUMN_BYTES: Final = 16 * 1024 * 1024
_SLACK_MS: Final = 5_000


class RangeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How to read a range."""

    read_committed: bool = True
    answer_bytes_max: int = 8 * 1024 * 1024
    fetch_wait_ms: int = 500
    timeout_ms: int = 60_000


class RecordsTrimmed(InvalidRequest):
    """The requested records are gone; ``earliest`` is the present start of the partition."""

    def __init__(self, partition: TopicPartition, offset: int, earliest: int, latest: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} is gone: the partition has {earliest} to {latest}",
            subject=str(partition),
            remedy="retention or a deletion was faster than the reader, or the topic was "
            "re-created; start again, or allow loss of data",
        )
        self.earliest = earliest
        self.latest = latest


class _FetchResult(NamedTuple):
    """The result of one fetch."""

    data: PartitionData
    until: int  # where the next fetch starts


class RangeReader:
    """Reads one range of one partition; iterate over it once."""

    def __init__(
        self,
        cluster: Cluster,
        partition: TopicPartition,
        start: int,
        until: int,
        settings: RangeSettings | None = None,
    ) -> None:
        self._cluster = cluster
        self._partition = partition
        self._position = start
        self._until = until
        self._settings = settings or RangeSettings()

    async def batches(self) -> AsyncIterator[list[PlainBatch]]:
        """The batches, one list per response; the last may reach beyond the range.

        Raises:
            RecordsTrimmed: a part of the range is gone.
            Corrupt: a batch is damaged.
            MainstemError: the partition cannot be read in time.
        """
        coming: asyncio.Task[_FetchResult] | None = None
        try:
            while self._position < self._until:
                answer = await (coming or self._fetch(self._position))
                coming = None
                began, self._position = self._position, answer.until
                if self._position < self._until:
                    coming = asyncio.create_task(self._fetch(self._position))
                    # One turn of the loop sends the next request before this response is processed.
                    await asyncio.sleep(0)
                yield self._visible(answer.data, began)
        finally:
            if coming is not None:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)

    async def columns(self, *, with_headers: bool = False) -> AsyncIterator[RecordColumns]:
        """The records of the range as columns of about ``COLUMN_ROWS`` rows; see ``batches``."""
        start, until = self._position, self._until
        waiting: list[PlainBatch] = []
        rows = size = 0
        async for batches in self.batches():
            for batch in batches:
                waiting.append(batch)
                rows += batch.record_count
                size += len(batch.body)
                if rows >= COLUMN_ROWS or size >= COLUMN_BYTES:
                    yield self._decoded(waiting, start, until, with_headers=with_headers)
                    waiting = []
                    rows = size = 0
        if waiting:
            yield self._decoded(waiting, start, until, with_headers=with_headers)

    def _decoded(
        self, batches: list[PlainBatch], start: int, until: int, *, with_headers: bool
    ) -> RecordColumns:
        try:
            return decode_columns(batches, start, until, with_headers=with_headers)
        except Corrupt as error:
            places = f"{batches[0].base_offset} to {batches[-1].until_offset}"
            raise Corrupt(
                f"{error.cause}, in the batches at offsets {places}", subject=str(self._partition)
            ) from error

    async def _fetch(self, position: int) -> _FetchResult:
        """Fetches until a response has batches, or nothing is left below the end."""
        for _ in range(EMPTY_ANSWERS_MAX):
            data = await self._cluster.retrying(
                lambda: self._ask(position), timeout_ms=self._settings.timeout_ms
            )
            end = -1
            for header, _batch in batches_of(data.records or b""):
                end = header.until_offset
            if end > position:
                return _FetchResult(data, end)
            if data.records:
                raise Corrupt(
                    "a response without a complete batch", subject=f"{self._partition}@{position}"
                )
            self._check_end(data, position)
        # Compaction may leave nothing between here and the end of the range.
        return _FetchResult(data, self._until)

    def _check_end(self, data: PartitionData, position: int) -> None:
        is_committed = self._settings.read_committed
        end = data.last_stable_offset if is_committed else data.high_watermark
        if end < self._until:
            raise RecordsTrimmed(self._partition, position, data.log_start_offset, end)

    async def _ask(self, position: int) -> PartitionData:
        topic, index = self._partition
        link, info = await self._cluster.leader(topic, index)
        known = self._cluster.known_topic(topic)
        topic_id = NO_TOPIC_ID if known is None else known.id
        connection = await link.connection()
        limit = TOPIC_IDS_SINCE_VERSION - 1 if topic_id == NO_TOPIC_ID else None
        settings = self._settings
        wanted = FetchPartition(
            partition=index,
            current_leader_epoch=info.leader_epoch,
            fetch_offset=position,
            partition_max_bytes=settings.answer_bytes_max,
        )
        response: FetchResponse = await connection.call(
            FetchRequest(
                max_wait_ms=settings.fetch_wait_ms,
                min_bytes=1,
                max_bytes=settings.answer_bytes_max,
                isolation_level=int(settings.read_committed),
                topics=[FetchTopic(topic_id=topic_id, topic=topic, partitions=[wanted])],
            ),
            version=connection.version_of("Fetch", limit),
            timeout_ms=settings.fetch_wait_ms + settings.timeout_ms // 2 + _SLACK_MS,
        )
        errors.check(response.error_code, subject=str(self._partition))
        [answer] = response.responses[0].partitions
        if answer.error_code == errors.OFFSET_OUT_OF_RANGE:
            raise await self._trimmed(position)
        errors.check(answer.error_code, subject=str(self._partition))
        return answer

    async def _trimmed(self, position: int) -> RecordsTrimmed:
        """The error, with the offsets of the partition, which the broker's response lacks."""
        place = self._partition
        earliest = await list_offsets(self._cluster, {place: EARLIEST})
        latest = await list_offsets(self._cluster, {place: LATEST})
        return RecordsTrimmed(place, position, earliest[place].offset, latest[place].offset)

    def _visible(self, data: PartitionData, began: int) -> list[PlainBatch]:
        aborted = data.aborted_transactions if self._settings.read_committed else ()
        visibility = AbortedBatchFilter(
            (each.first_offset, each.producer_id) for each in aborted or ()
        )
        shown = []
        for header, batch in batches_of(data.records or b""):
            try:
                if header.until_offset <= began or header.base_offset >= self._until:
                    continue
                if visibility.shows(header, batch):
                    shown.append(plain_batch(header, batch))
            except Corrupt as error:
                raise Corrupt(
                    f"{error.cause}, in the batch at offset {header.base_offset}",
                    subject=str(self._partition),
                    remedy="read the ranges before and after it",
                ) from error
        return shown
