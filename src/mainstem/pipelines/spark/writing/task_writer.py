"""The task's half of writing to topics: delivers rows in a transaction that it leaves prepared."""

import time
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

import pyarrow as pa
from pyspark import TaskContext

from mainstem.client.producer import Producer
from mainstem.client.transactions import TransactionalProducer, TransactionHandle
from mainstem.pipelines.spark.cluster_client import SparkClusterClient, cached_client
from mainstem.pipelines.spark.writing.commit_message import TaskCommit, WriteOwner
from mainstem.pipelines.spark.writing.ledger import id_prefix
from mainstem.pipelines.spark.writing.options import WriteOptions
from mainstem.pipelines.spark.writing.record_columns import FrameColumns
from mainstem.pipelines.spark.writing.row_encoder import RowEncoder


class TaskAttempt(NamedTuple):
    """One attempt at one task."""

    owner: WriteOwner
    transactional_id: str


def write_rows(
    given: dict[str, str],
    options: WriteOptions,
    columns: FrameColumns,
    owner: WriteOwner,
    rows: Iterator[pa.RecordBatch],
) -> TaskCommit:
    """Writes the rows of one task attempt and leaves its transaction prepared."""
    context = TaskContext.get()
    attempt = 0 if context is None else context.attemptNumber()
    filled = (batch for batch in rows if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return TaskCommit(owner, None, attempt)
    wire = cached_client(options.servers, given)
    encoder = RowEncoder(columns, options.topic, options.batch_bytes)
    work = chain([first], filled)
    if not options.is_exactly_once:
        wire.run(_send(wire, options, encoder, work))
        return TaskCommit(owner, None, attempt)
    place = 0 if context is None else context.partitionId()
    prefix = f"{id_prefix(owner.query, owner.sink)}{owner.run}/"
    task = TaskAttempt(owner, f"{prefix}{place}/{attempt}")
    return TaskCommit(owner, wire.run(_prepare(wire, options, task, encoder, work)), attempt)


async def _prepare(
    wire: SparkClusterClient,
    options: WriteOptions,
    task: TaskAttempt,
    encoder: RowEncoder,
    rows: Iterable[pa.RecordBatch],
) -> TransactionHandle:
    # Leaving the block aborts an open transaction, but not a prepared one.
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
    wire: SparkClusterClient,
    options: WriteOptions,
    encoder: RowEncoder,
    rows: Iterable[pa.RecordBatch],
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
