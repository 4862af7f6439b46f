"""The ledger of a query: its last batch, and the transactions that contain it.

One compacted topic has one record per query and sink, without expiry:

    key    <query id>/<sink>
    value  {"batch": 17, "handles": [["<transactional id>", <producer id>, <epoch>, true], …],
            "version": 1}

Once the record is stored, the batch is written: its transactions are committed, now or at the next
start of the query. Before that it is not, and its transactions are aborted. Guarantees: a batch
counts once, however often Spark tries it; of two drivers of one query only the one that took over
the ledger last can record anything, and it has read all that the other one recorded.
"""

import asyncio
import logging
from collections.abc import Iterator
from typing import Final, Self

import msgspec

from mainstem.client.admin import Admin
from mainstem.client.cluster import Cluster
from mainstem.client.consuming.offset_query import EARLIEST, LATEST, list_offsets
from mainstem.client.consuming.range_reader import RangeReader
from mainstem.client.settings import ProducerSettings
from mainstem.client.transactions import TransactionalProducer, TransactionHandle
from mainstem.client.values import TopicPartition
from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.model.errors import Corrupt, ErrorCode, Fenced, MainstemError, Unavailable
from mainstem.model.records.columns import BinaryColumn
from mainstem.model.versioned_json import FIRST, decoded

TOPIC: Final = "__mainstem_spark_ledger"
PLACE: Final = TopicPartition(TOPIC, 0)
# Small segments, so that superseded records are removed soon and the topic is read quickly.
CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "segment.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.1",
}
TIMEOUT_MS: Final = 60_000
# Records of all queries are in one partition: a driver that crashes while it records delays
# readers of the others for this time.
RECORD_TIMEOUT_MS: Final = 10_000
STABLE_POLL_S: Final = 0.1
CLOSE_TIMEOUT_MS: Final = 5_000

_log = logging.getLogger(__name__)


class LedgerEntry(msgspec.Struct, frozen=True):
    """The last batch of a query, and the transactions that contain it."""

    batch: int
    handles: tuple[TransactionHandle, ...]
    version: int = FIRST


NOTHING: Final = LedgerEntry(-1, ())


class Ledger:
    """The ledger of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def entry(self, query: str, sink: str) -> LedgerEntry | None:
        """The last batch of a query; None when it has written none.

        Raises:
            Corrupt: the record is not a ledger entry.
            UnknownVersion: a later release wrote it, in a newer format.
            Unavailable: a transaction of another writer does not end.
        """
        await self.ensure()
        wanted = _key(query, sink)
        found: bytes | None = None
        for key, value in await self._records():
            if key == wanted:
                found = value
        return None if found is None else entry_of(found)

    async def ensure(self) -> None:
        """Creates the topic if it does not exist."""
        try:
            await self._cluster.retrying(self._look, timeout_ms=TIMEOUT_MS)
        except _Missing:
            try:
                await Admin(self._cluster).create_topic(TOPIC, partitions=1, configs=CONFIGS)
            except MainstemError as error:
                if error.code is not ErrorCode.TOPIC_EXISTS:  # another process created it first
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
        reader = RangeReader(self._cluster, PLACE, starts[PLACE].offset, await self._end())
        found: list[tuple[bytes | None, bytes | None]] = []
        async for columns in reader.columns():
            rows = columns.row_count
            found += zip(_cells(columns.keys, rows), _cells(columns.values, rows), strict=True)
        return found

    async def _end(self) -> int:
        """The end of the topic, once everything before it is decided."""
        end = (await list_offsets(self._cluster, {PLACE: LATEST}))[PLACE].offset
        deadline = asyncio.get_running_loop().time() + TIMEOUT_MS / 1000
        while True:
            stable = await list_offsets(self._cluster, {PLACE: LATEST}, read_committed=True)
            if stable[PLACE].offset >= end:
                return end
            if asyncio.get_running_loop().time() >= deadline:
                raise Unavailable(
                    ErrorCode.TIMED_OUT,
                    f"a transaction at offset {stable[PLACE].offset} does not end",
                    subject=TOPIC,
                    remedy="mainstem transaction list shows its owner",
                )
            await asyncio.sleep(STABLE_POLL_S)


class LedgerWriter:
    """The one driver that records the batches of a query and sink; see ``take_over``.

    Args:
        cluster: the cluster of the ledger.
        transactional_id: a driver that takes it over later fences this writer.
        key: of the query and sink.
    """

    def __init__(self, cluster: Cluster, transactional_id: str, key: bytes) -> None:
        self.transactional_id = transactional_id
        self._key = key
        self._producer = TransactionalProducer(
            cluster,
            transactional_id,
            ProducerSettings(linger_ms=0.0),
            timeout_ms=RECORD_TIMEOUT_MS,
        )

    @classmethod
    async def take_over(cls, cluster: Cluster, query: str, sink: str) -> Self:
        """Fences every other writer of the query: their records are visible, and no more follow."""
        await Ledger(cluster).ensure()
        writer = cls(cluster, ledger_id(query, sink), _key(query, sink))
        await writer._producer.__aenter__()
        return writer

    @property
    def is_version_2(self) -> bool:
        """Whether transactions of this cluster are of version 2 (KIP-890)."""
        return self._producer.handle.is_version_2

    async def record(self, entry: LedgerEntry) -> None:
        """Makes a batch the last one of the query; from now on it is written.

        Raises:
            Fenced: another driver has taken over; nothing was recorded now.
        """
        producer = self._producer
        try:
            async with producer.transaction():
                await producer.send_and_wait(TOPIC, entry_value(entry), key=self._key, partition=0)
        except MainstemError as error:
            if error.code is not ErrorCode.FENCED_PRODUCER:
                raise
            raise Fenced(
                ErrorCode.FENCED_PRODUCER,
                "another driver writes this query now",
                subject=self._key.decode(),
                remedy="use a checkpoint in one driver only; stop this one or the other",
            ) from error

    async def close(self) -> None:
        """Closes the writer without fencing others.

        The next writer aborts what it could not record, so a failure is only logged.
        """
        try:
            await self._producer.close(timeout_ms=CLOSE_TIMEOUT_MS)
        except MainstemError as error:
            _log.info("closing the writer of %s failed: %s", self._key.decode(), error)


def entry_of(value: bytes) -> LedgerEntry:
    """The entry of a record.

    Raises:
        Corrupt: the record is not a ledger entry.
        UnknownVersion: a later release wrote it, in a newer format.
    """
    try:
        return decoded(value, LedgerEntry, "a record of the ledger", TOPIC)
    except DECODE_ERRORS as error:
        raise Corrupt(f"a record of the ledger: {error}", subject=TOPIC) from None


def entry_value(entry: LedgerEntry) -> bytes:
    """The value of an entry's record."""
    return msgspec.json.encode(entry)


def id_prefix(query: str, sink: str) -> str:
    """The prefix of a query's transactional ids."""
    return f"spark/{query}/{sink}/"


def ledger_id(query: str, sink: str) -> str:
    """The transactional id under which a query's batches are recorded."""
    return f"{id_prefix(query, sink)}ledger"


def _cells(column: BinaryColumn, rows: int) -> Iterator[bytes | None]:
    """The values of a column, read without Arrow to keep the driver's process small."""
    places, validity = memoryview(column.offsets).cast("i"), column.validity
    for row in range(rows):
        is_there = validity is None or validity[row >> 3] >> (row & 7) & 1
        yield bytes(column.data[places[row] : places[row + 1]]) if is_there else None


class _Missing(Exception):
    """The topic does not exist yet."""


def _key(query: str, sink: str) -> bytes:
    return f"{query}/{sink}".encode()
