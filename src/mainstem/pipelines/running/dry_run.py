"""Dry run: processes a few real records and shows the result instead of writing it.

Sources must not change anything outside; checkpoints are in a temporary folder, and the consumer
group of a sink's dry run is deleted afterwards.
"""

import asyncio
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession

from mainstem.client.admin import Admin
from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.pipelines.connector.shapes import ConnectorContext
from mainstem.pipelines.connector.wire import as_wire
from mainstem.pipelines.file.loader import Pipeline, PipelineFile, SourcePipeline
from mainstem.pipelines.running.client_options import cluster_of
from mainstem.pipelines.running.query_builder import QueryBuilder
from mainstem.pipelines.running.rate_limit import BatchPace

POLL_S = 0.05
TRIGGER_MS = 100


class DryRunResult(Struct):
    """The input, the records that would be written, and those that would be dead letters."""

    taken: int
    good: list[dict[str, Any]]
    dead: list[dict[str, Any]]


def dry_run_pipeline(
    file: PipelineFile, pipeline: Pipeline, spark: SparkSession, *, records: int, patience_s: float
) -> DryRunResult:
    """Process up to ``records`` records, waiting at most ``patience_s`` for them.

    Raises:
        StreamingQueryException: the source failed.
    """
    seen = DryRunResult(0, [], [])
    group = f"rehearsal-{uuid.uuid4()}"
    with tempfile.TemporaryDirectory(prefix="mainstem-rehearsal-") as scratch:
        frame = _frame(file, pipeline, spark, Path(scratch), group=group, records=records)

        def take(batch: DataFrame, batch_id: int) -> None:
            del batch_id
            _show(batch.limit(records - seen.taken), pipeline, seen)

        query = (
            frame.writeStream.foreachBatch(take)
            .option("checkpointLocation", f"{scratch}/checkpoint")
            .trigger(processingTime=f"{TRIGGER_MS} milliseconds")
            .start()
        )
        try:
            deadline = time.monotonic() + patience_s
            while query.isActive and seen.taken < records and time.monotonic() < deadline:
                time.sleep(POLL_S)
            while query.isActive and query.status["isTriggerActive"]:
                time.sleep(POLL_S)
            if (error := query.exception()) is not None:
                raise error
        finally:
            query.stop()
            if pipeline.kind == "sink":
                _forget(file, group)
    return seen


def _frame(
    file: PipelineFile,
    pipeline: Pipeline,
    spark: SparkSession,
    scratch: Path,
    *,
    group: str,
    records: int,
) -> DataFrame:
    if isinstance(pipeline, SourcePipeline):
        entry = pipeline.entry
        context = ConnectorContext(
            pipeline=pipeline.id,
            state_dir=scratch / "connector",
            rows_per_batch_max=records,
            rehearsal=True,
            topic=entry.topic,
            tables=tuple(entry.tables),
        )
        read = pipeline.connector.read(spark, pipeline.config, context)
        return as_wire(read, topic=entry.topic)
    assembly = QueryBuilder(spark, file.model.broker, file.model.settings, scratch)
    return assembly.topics(pipeline.entry, group, BatchPace(TRIGGER_MS, records))


def _show(batch: DataFrame, pipeline: Pipeline, seen: DryRunResult) -> None:
    rows = batch.collect()
    seen.taken += len(rows)
    if not rows:
        return
    if not pipeline.plan.steps:
        seen.good += [row.asDict() for row in rows]
        return
    # The rows that were counted, not the batch again: a source may return others the second time.
    fixed = batch.sparkSession.createDataFrame(rows, batch.schema)
    applied = pipeline.plan.apply(fixed)
    seen.good += [row.asDict() for row in applied.frame.collect()]
    if applied.dead is not None:
        seen.dead += [row.asDict() for row in applied.dead.collect()]


def _forget(file: PipelineFile, group: str) -> None:
    async def delete() -> None:
        cluster = cluster_of(file.model.broker)
        try:
            await Admin(cluster).groups.delete([group])
        except MainstemError as error:
            # Nothing was committed, so the group does not exist.
            if error.code is not ErrorCode.UNKNOWN_GROUP:
                raise
        finally:
            await cluster.close()

    asyncio.run(delete())
