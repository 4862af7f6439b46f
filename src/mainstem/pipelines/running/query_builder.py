"""Builds the streaming queries of a pipeline.

    source:  connector -> transforms -> topics (good records and dead letters in one query)
    sink:    topics -> transforms -> connector, and a second query for the dead letters

A sink's dead letters are a separate query because two destinations cannot be written in one query
exactly once; both read the same records, each keeps its part.
"""

from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from mainstem.pipelines.connector.shapes import ConnectorContext
from mainstem.pipelines.connector.topic_writer import FORMAT, topic_writer
from mainstem.pipelines.connector.wire import PLAIN_FIELDS, WIRE_TYPES, as_wire
from mainstem.pipelines.file import rules
from mainstem.pipelines.file.loader import Pipeline, SinkPipeline, SourcePipeline
from mainstem.pipelines.file.model import BrokerSection, Settings, SinkEntry
from mainstem.pipelines.running import dead_letters
from mainstem.pipelines.running.client_options import spark_options
from mainstem.pipelines.running.dead_letter_topic import DeadLetterTopic
from mainstem.pipelines.running.rate_limit import BatchPace, batch_pace_of
from mainstem.pipelines.running.topics import offsets_json

DEAD_SUFFIX = "#dead"
OBSERVED, OBSERVED_ROWS, OBSERVED_DEAD = "mainstem", "rows", "dead"


class PendingQuery(Struct, frozen=True):
    """A query that is not started yet."""

    name: str
    writer: DataStreamWriter
    checkpoint: Path
    pace: BatchPace

    def start(self, *, once: bool) -> StreamingQuery:
        """Start it; with ``once`` it ends when all current records are processed."""
        named = self.writer.queryName(self.name).option("checkpointLocation", str(self.checkpoint))
        if once:
            return named.trigger(availableNow=True).start()
        return named.trigger(processingTime=f"{self.pace.interval_ms} milliseconds").start()


class QueryBuilder:
    """Builds the queries of one file's pipelines in one session."""

    def __init__(
        self, spark: SparkSession, broker: BrokerSection, settings: Settings, state_dir: Path
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._state_dir = state_dir
        self._broker = broker
        self._options = spark_options(broker)

    def folder(self, pipeline: Pipeline) -> Path:
        """The state folder of a pipeline."""
        return self._state_dir / f"{pipeline.kind}s" / pipeline.name

    def context(self, pipeline: Pipeline, pace: BatchPace) -> ConnectorContext:
        """The context of the pipeline's connector."""
        entry = pipeline.entry
        letters = None
        if entry.dead_letter_topic is not None:
            letters = DeadLetterTopic(
                entry.dead_letter_topic, pipeline.id, self._options, self.folder(pipeline)
            )
        source = pipeline.entry if isinstance(pipeline, SourcePipeline) else None
        return ConnectorContext(
            pipeline=pipeline.id,
            state_dir=self.folder(pipeline) / "connector",
            rows_per_batch_max=pace.rows_per_batch_max if source else None,
            topic=source.topic if source else None,
            tables=tuple(source.tables) if source else (),
            dead_letters=letters,
            plain_fields=source is not None and pipeline.plan.reads_fields,
            output_mode=pipeline.plan.output_mode,
        )

    def queries(self, pipeline: Pipeline) -> list[PendingQuery]:
        """The queries of one pipeline."""
        entry = pipeline.entry
        interval_ms = entry.trigger_interval_ms
        if interval_ms is None:
            interval_ms = self._settings.trigger_interval_ms
        pace = batch_pace_of(entry.rate_limit, interval_ms)
        if isinstance(pipeline, SourcePipeline):
            return [self._source_query(pipeline, pace)]
        return self._sink_queries(pipeline, pace)

    def _source_query(self, pipeline: SourcePipeline, pace: BatchPace) -> PendingQuery:
        entry, context = pipeline.entry, self.context(pipeline, pace)
        read = pipeline.connector.read(self._spark, pipeline.config, context)
        out = transformed(as_wire(read, topic=entry.topic), pipeline, topic=entry.topic)
        out = _observed(out, entry.dead_letter_topic)
        writer = topic_writer(out, self._options, pipeline.plan.output_mode)
        return PendingQuery(pipeline.id, writer, self.folder(pipeline) / "checkpoint", pace)

    def _sink_queries(self, pipeline: SinkPipeline, pace: BatchPace) -> list[PendingQuery]:
        entry = pipeline.entry
        group = rules.group_of(pipeline.name, entry)
        with_fields = pipeline.plan.reads_fields
        records = self.topics(entry, group, pace, with_fields=with_fields)
        good, dead = parted(records, pipeline)
        writer = pipeline.connector.write(
            _observed(good, None), pipeline.config, self.context(pipeline, pace)
        )
        writer = writer.outputMode(pipeline.plan.output_mode)
        folder = self.folder(pipeline)
        queries = [PendingQuery(pipeline.id, writer, folder / "checkpoint", pace)]
        if dead is not None and entry.dead_letter_topic is not None:
            # It reads separately, with its own group: two queries cannot share committed offsets.
            again = self.topics(entry, f"{group}.dead", pace, with_fields=with_fields)
            _, dead = parted(again, pipeline)
            assert dead is not None
            letters = dead_letters.envelopes(
                dead, topic=entry.dead_letter_topic, pipeline=pipeline.id
            )
            letters = _observed(letters, entry.dead_letter_topic)
            writer = topic_writer(letters, self._options, "append")
            queries.append(
                PendingQuery(pipeline.id + DEAD_SUFFIX, writer, folder / "dead-checkpoint", pace)
            )
        return queries

    def topics(
        self, entry: SinkEntry, group: str, pace: BatchPace, *, with_fields: bool = False
    ) -> DataFrame:
        """The records of a sink's topics; with parsed fields of flat JSON objects, for steps."""
        options = {**self._options, "includeHeaders": "true", "kafka.group.id": group}
        if any(rules.is_pattern(topic) for topic in entry.topics):
            options["subscribePattern"] = rules.pattern_of(entry.topics)
        else:
            options["subscribe"] = ",".join(entry.topics)
        if isinstance(entry.start_offset, int):
            options["startingOffsets"] = offsets_json(
                self._broker, entry.topics, entry.start_offset
            )
        elif entry.start_offset in {"earliest", "latest"}:
            options["startingOffsets"] = entry.start_offset
        else:
            options["startingTimestamp"] = str(_milliseconds(entry.start_offset))
        if pace.rows_per_batch_max is not None:
            options["maxOffsetsPerTrigger"] = str(pace.rows_per_batch_max)
        options["includePlainFields"] = str(with_fields).lower()
        read = self._spark.readStream.format(FORMAT).options(**options).load()
        return read.select(*WIRE_TYPES, *([PLAIN_FIELDS] if with_fields else []))


def transformed(frame: DataFrame, pipeline: Pipeline, *, topic: str | None) -> DataFrame:
    """A frame after the pipeline's steps, with dead letters among the good records.

    Without a dead-letter topic, a refused record raises.
    """
    if not pipeline.plan.steps:
        return as_wire(frame, topic=topic)
    return dead_letters.split(
        pipeline.plan.marked(frame),
        dead_letter_topic=pipeline.entry.dead_letter_topic,
        pipeline=pipeline.id,
        topic=topic,
    )


def parted(records: DataFrame, pipeline: Pipeline) -> tuple[DataFrame, DataFrame | None]:
    """Good records for a sink, and the dead letters if steps can refuse any.

    Without a dead-letter topic, the good records raise at a refused one.
    """
    if not pipeline.plan.steps:
        return records, None
    if pipeline.entry.dead_letter_topic is None:
        return transformed(records, pipeline, topic=None), None
    applied = pipeline.plan.apply(records)
    return applied.frame, applied.dead


def _observed(frame: DataFrame, dead_letter_topic: str | None) -> DataFrame:
    """The same frame with an observation that counts rows; Spark reports it with every batch."""
    dead = F.lit(0)
    if dead_letter_topic is not None:
        dead = F.when(F.col("topic") == dead_letter_topic, 1).otherwise(0)
    return frame.observe(
        OBSERVED,
        F.count(F.lit(1)).alias(OBSERVED_ROWS),
        F.coalesce(F.sum(dead), F.lit(0)).alias(OBSERVED_DEAD),
    )


def _milliseconds(moment: str) -> int:
    parsed = datetime.fromisoformat(moment)
    if parsed.tzinfo is None:
        parsed = parsed.replace(tzinfo=UTC)
    return round(parsed.timestamp() * 1000)
