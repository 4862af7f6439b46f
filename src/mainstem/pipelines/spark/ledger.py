"""What a query has written: which batch was last, and the transactions that hold it.

One compacted topic keeps one record per query and sink, for ever:

    key    <query id>/<sink>
    value  {"batch": 17, "handles": [["<transactional id>", <producer id>, <epoch>, true], …]}

Once the record stands, the batch is written: its transactions are committed, now or by whoever
starts the query again. Before that it is not, and its transactions are aborted. Promise: a batch
counts once, however often Spark tries it.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from mainstem.client.admin import Admin
from mainstem.client.cluster import Cluster
from mainstem.client.offset_query import EARLIEST, LATEST, list_offsets
from mainstem.client.producer import Producer
from mainstem.client.range_reader import RangeReader
from mainstem.client.settings import ProducerSettings
from mainstem.client.transactions import TransactionHandle
from mainstem.client.values import TopicPartition
from mainstem.model.columns import BinaryColumn
from mainstem.model.errors import Corrupt, ErrorCode, MainstemError

TOPIC: Final = "__mainstem_spark_ledger"
PLACE: Final = TopicPartition(TOPIC, 0)
# Small segments: what was superseded goes soon, so that the topic is read quickly at a start.
CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "segment.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.1",
}
TIMEOUT_MS: Final = 60_000


class Entry(msgspec.Struct, frozen=True):
    """The last batch of a query, and the transactions that hold it."""

    batch: int
    handles: tuple[TransactionHandle, ...]


class Ledger:
    """The ledger of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def entry(self, query: str, sink: str) -> Entry | None:
        """The last batch of a query; None when it has written none.

        Raises:
            Corrupt: the record is not one of ours.
        """
        await self._ensure()
        wanted = _key(query, sink)
        found: bytes | None = None
        for key, value in await self._records():
            if key == wanted:
                found = value
        if found is None:
            return None
        try:
            return msgspec.json.decode(found, type=Entry)
        except msgspec.DecodeError as error:
            raise Corrupt(f"a record of the ledger: {error}", subject=TOPIC) from None

    async def record(self, query: str, sink: str, entry: Entry) -> None:
        """Makes a batch the last one of a query; from now on it is written."""
        settings = ProducerSettings(linger_ms=0.0)
        async with Producer(self._cluster, settings) as producer:
            await producer.send_and_wait(
                TOPIC, msgspec.json.encode(entry), key=_key(query, sink), partition=0
            )

    async def forget(self, query: str, sink: str) -> None:
        """Takes a query out, whose checkpoint is gone for good."""
        async with Producer(self._cluster) as producer:
            await producer.send_and_wait(TOPIC, None, key=_key(query, sink), partition=0)

    async def _ensure(self) -> None:
        """Creates the topic, unless it is there."""
        try:
            await self._cluster.retrying(self._look, timeout_ms=TIMEOUT_MS)
        except _Missing:
            try:
                await Admin(self._cluster).create_topic(TOPIC, partitions=1, configs=CONFIGS)
            except MainstemError as error:
                if error.code is not ErrorCode.TOPIC_EXISTS:  # somebody else was quicker
                    raise
            await self._cluster.retrying(
                lambda: self._cluster.topics([TOPIC]), timeout_ms=TIMEOUT_MS
            )

    async def _look(self) -> None:
        try:
            await self._cluster.topics([TOPIC])
        except MainstemError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC:
                raise _Missing from None
            raise

    async def _records(self) -> list[tuple[bytes | None, bytes | None]]:
        starts = await list_offsets(self._cluster, {PLACE: EARLIEST})
        ends = await list_offsets(self._cluster, {PLACE: LATEST})
        reader = RangeReader(self._cluster, PLACE, starts[PLACE].offset, ends[PLACE].offset)
        found: list[tuple[bytes | None, bytes | None]] = []
        async for columns in reader.columns():
            rows = columns.row_count
            found += zip(_cells(columns.keys, rows), _cells(columns.values, rows), strict=True)
        return found


def _cells(column: BinaryColumn, rows: int) -> Iterator[bytes | None]:
    """A column row by row, without Arrow: who ends batches needs it for nothing else."""
    places, validity = memoryview(column.offsets).cast("i"), column.validity
    for row in range(rows):
        is_there = validity is None or validity[row >> 3] >> (row & 7) & 1
        yield bytes(column.data[places[row] : places[row + 1]]) if is_there else None


class _Missing(Exception):
    """The topic is not there yet."""


def _key(query: str, sink: str) -> bytes:
    return f"{query}/{sink}".encode()
