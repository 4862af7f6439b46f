"""Frames into topics: ``format("mainstem")`` for writing tables and streams.

Exactly once: every task attempt writes in a transaction of its own and leaves it *prepared*, that
is delivered and undecided. When all tasks are done the driver writes the batch and the names of its
transactions into the ledger, then commits them. A driver that dies before the ledger leaves a batch
that never counts; one that dies after it leaves a batch that the next start completes.

    task ─▶ begin ─ write ─ prepare ─▶ handle ─┐
    task ─▶ begin ─ write ─ prepare ─▶ handle ─┴▶ ledger ─▶ commit each

The transactions of a batch become visible one after the other, not all at once. Transactional ids
are used again batch after batch, so a query has few of them; those of other runs of the same query
are ended before a run commits for the first time.
"""

import asyncio
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from mainstem.client.producer import Producer
from mainstem.client.transactions import (
    TransactionalProducer,
    TransactionHandle,
    end_transaction,
)
from mainstem.pipelines.spark.completion import Batch, complete, give_up, id_prefix
from mainstem.pipelines.spark.row_encoder import Columns, RowEncoder, find_columns
from mainstem.pipelines.spark.wire import Wire, wire_to
from mainstem.pipelines.spark.write_options import WriteOptions, parse_write_options

QUERY_ID: Final = "sql.streaming.queryId"
RUN_ID: Final = "spark.jobGroup.id"


class Owner(NamedTuple):
    """On whose behalf a task writes; ``two_phase`` transactions wait for the driver for ever."""

    query: str
    sink: str
    run: str
    two_phase: bool = True

    @property
    def prefix(self) -> str:
        """How the transactional ids of the run begin."""
        return f"{id_prefix(self.query, self.sink)}{self.run}/"


class Task(NamedTuple):
    """One attempt at one task."""

    owner: Owner
    transactional_id: str


class Written(WriterCommitMessage):
    """What a task tells the driver: its transaction, if it wrote anything."""

    def __init__(self, owner: Owner, handle: TransactionHandle | None, attempt: int) -> None:
        self.owner = owner
        self.handle = handle
        self.attempt = attempt


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query."""

    def __init__(self, given: dict[str, str], schema: StructType) -> None:
        self._given = given
        self._options = parse_write_options(given)
        self._columns = find_columns(schema.fieldNames(), has_topic=self._options.topic is not None)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Writes the rows of one task."""
        owner = Owner(
            _property(QUERY_ID) or "unknown", self._options.sink, _property(RUN_ID) or "unknown"
        )
        return _write(self._given, self._options, self._columns, owner, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """All tasks are done: the batch counts from now on."""
        batch = _batch(messages, batchId)
        if batch is not None:
            wire = wire_to(self._options.servers, self._given)
            wire.run(complete(wire.cluster, batch))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """A task, or the commit, has failed: the batch does not count unless the ledger has it."""
        batch = _batch(messages, batchId)
        if batch is not None:
            wire = wire_to(self._options.servers, self._given)
            wire.run(give_up(wire.cluster, batch))


class TableWriter(DataSourceArrowWriter):
    """Writes one frame. With ``ledger.query`` and ``ledger.batch`` it is written once for all."""

    def __init__(self, given: dict[str, str], schema: StructType) -> None:
        self._given = given
        self._options = parse_write_options(given)
        self._columns = find_columns(schema.fieldNames(), has_topic=self._options.topic is not None)
        query = self._options.ledger_query
        # Chosen once, in the driver; tasks get a copy.
        self._owner = Owner(
            query or "table", self._options.sink, secrets.token_hex(8), two_phase=query is not None
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Writes the rows of one task."""
        owner = self._owner
        if owner.two_phase:
            # Within a query its transactional ids are used again, batch after batch.
            owner = owner._replace(run=_property(RUN_ID) or owner.run)
        return _write(self._given, self._options, self._columns, owner, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All tasks are done: the frame counts from now on."""
        wire = wire_to(self._options.servers, self._given)
        if self._options.ledger_batch is not None:
            batch = _batch(messages, self._options.ledger_batch)
            if batch is not None:
                wire.run(complete(wire.cluster, batch))
            return
        wire.run(_end_all(wire, _handles(messages), commit=True))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """A task has failed: nothing counts."""
        wire = wire_to(self._options.servers, self._given)
        if self._options.ledger_batch is not None:
            batch = _batch(messages, self._options.ledger_batch)
            if batch is not None:
                wire.run(give_up(wire.cluster, batch))
            return
        wire.run(_end_all(wire, _handles(messages), commit=False))


def _write(
    given: dict[str, str],
    options: WriteOptions,
    columns: Columns,
    owner: Owner,
    rows: Iterator[pa.RecordBatch],
) -> Written:
    """One task attempt: its rows, delivered, in a transaction that is left undecided."""
    context = TaskContext.get()
    attempt = 0 if context is None else context.attemptNumber()
    filled = (batch for batch in rows if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return Written(owner, None, attempt)
    wire = wire_to(options.servers, given)
    encoder = RowEncoder(columns, options.topic, options.batch_bytes)
    work = chain([first], filled)
    if not options.is_exactly_once:
        wire.run(_send(wire, options, encoder, work))
        return Written(owner, None, attempt)
    place = 0 if context is None else context.partitionId()
    task = Task(owner, f"{owner.prefix}{place}/{attempt}")
    return Written(owner, wire.run(_prepare(wire, options, task, encoder, work)), attempt)


async def _prepare(
    wire: Wire,
    options: WriteOptions,
    task: Task,
    encoder: RowEncoder,
    rows: Iterable[pa.RecordBatch],
) -> TransactionHandle:
    # Leaving the block aborts what is open, and leaves alone what is prepared.
    async with TransactionalProducer(
        wire.cluster,
        task.transactional_id,
        options.producer,
        timeout_ms=options.transaction_timeout_ms,
        two_phase=task.owner.two_phase,
    ) as producer:
        producer.begin()
        await _fill(producer, encoder, rows)
        await producer.prepare()
        return producer.handle


async def _send(
    wire: Wire, options: WriteOptions, encoder: RowEncoder, rows: Iterable[pa.RecordBatch]
) -> None:
    async with Producer(wire.cluster, options.producer) as producer:
        await _fill(producer, encoder, rows)
        await producer.flush()


async def _fill(producer: Producer, encoder: RowEncoder, rows: Iterable[pa.RecordBatch]) -> None:
    for batch in rows:
        for topic in encoder.unknown_topics(batch):
            encoder.partition_counts[topic] = await producer.partitions_of(topic)
        for place, records in encoder.encode(batch, int(time.time() * 1000)):
            await producer.send_encoded(place, records)


async def _end_all(wire: Wire, handles: list[TransactionHandle], *, commit: bool) -> None:
    await asyncio.gather(
        *(end_transaction(wire.cluster, handle, commit=commit) for handle in handles)
    )


def _handles(messages: Sequence[WriterCommitMessage | None]) -> list[TransactionHandle]:
    written = [each for each in messages if isinstance(each, Written)]
    return [each.handle for each in written if each.handle is not None]


def _batch(messages: Sequence[WriterCommitMessage | None], number: int) -> Batch | None:
    """The batch that messages of tasks tell about; None where no task got as far as a message."""
    written = [each for each in messages if isinstance(each, Written)]
    if not written:
        return None
    owner = written[0].owner
    return Batch(
        owner.query,
        owner.sink,
        owner.run,
        number,
        tuple(_handles(messages)),
        is_smooth=len(written) == len(messages) and not any(each.attempt for each in written),
    )


def _property(name: str) -> str | None:
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)
