"""Frames into topics, exactly once."""

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from mainstem.client.admin import Admin
from mainstem.client.cluster import Cluster
from mainstem.client.consumer import Consumer, ConsumerSettings
from mainstem.client.transactions import TransactionalProducer, end_transaction
from mainstem.client.values import ConsumerRecord, TopicPartition
from mainstem.model.errors import InvalidRequest
from mainstem.model.records.murmur2 import partition_of_key
from mainstem.pipelines.spark.writing.completion import WrittenBatch, complete
from mainstem.pipelines.spark.writing.ledger import Ledger, LedgerEntry, LedgerWriter
from mainstem.testing.local_node import LocalNode

# Starting Spark takes a while on a busy machine.
pytestmark = pytest.mark.timeout(300)


def call(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


async def create(node: LocalNode, topic: str, partitions: int = 3) -> None:
    async with Admin(node.kafka) as admin:
        await admin.create_topic(topic, partitions=partitions)


async def records(node: LocalNode, topic: str, partitions: int = 3) -> list[ConsumerRecord]:
    """Everything that a reader of committed records can see of a topic."""
    settings = ConsumerSettings(reset="earliest", isolation="read_committed")
    async with Consumer(node.kafka, settings=settings) as consumer:
        places = [TopicPartition(topic, index) for index in range(partitions)]
        ends = await consumer.offsets(dict.fromkeys(places, -1))
        consumer.assign(places)
        for place in places:
            consumer.seek(place, 0)
        found: list[ConsumerRecord] = []
        waiting = {place for place in places if ends[place].offset > 0}
        while waiting:
            found += await consumer.poll(1_000, 10_000)
            waiting = {p for p in waiting if await consumer.position(p) < ends[p].offset}
        return found


def save(frame: DataFrame, node: LocalNode, **options: Any) -> None:
    writer = frame.write.format("mainstem").option("kafka.bootstrap.servers", node.kafka)
    writer.options(**options).mode("append").save()


def test_rows_carry_topic_key_value_headers_partition_and_time(
    spark: SparkSession, shared_node: LocalNode
) -> None:
    for topic in ("rows-0", "rows-1"):
        call(create(shared_node, topic))
    frame = spark.range(1000, numPartitions=3).select(
        f.format_string("rows-%d", f.col("id") % 2).alias("topic"),
        f.when(f.col("id") % 5 != 0, f.format_string("key %d", "id")).alias("key"),
        f.when(f.col("id") % 7 != 0, f.format_string("value %d", "id").cast("binary")).alias(
            "value"
        ),
        f.when(
            f.col("id") % 3 == 0,
            f.array(
                f.struct(f.lit("n").alias("key"), f.col("id").cast("string").alias("value")),
                f.struct(f.lit("none").alias("key"), f.lit(None).cast("string").alias("value")),
            ),
        ).alias("headers"),
        f.when(f.col("id") % 11 == 0, f.lit(2)).alias("partition"),
        f.timestamp_millis(f.col("id") + 1_700_000_000_000).alias("timestamp"),
        f.lit("not written").alias("another"),
    )
    save(frame, shared_node)
    found = [r for topic in ("rows-0", "rows-1") for r in call(records(shared_node, topic))]
    assert len(found) == 1000
    for record in found:
        number = record.timestamp - 1_700_000_000_000
        assert record.topic == f"rows-{number % 2}"
        assert record.value == (b"value %d" % number if number % 7 else None)
        assert record.key == (b"key %d" % number if number % 5 else None)
        assert record.headers == (
            (("n", b"%d" % number), ("none", None)) if number % 3 == 0 else ()
        )
        if number % 11 == 0:
            assert record.partition == 2
        elif record.key is not None:
            assert record.partition == partition_of_key(record.key, 3)


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("id", {"topic": "refused"}, "no column value"),
        ("'x' AS value", {}, "no topic to write to"),
        ("id AS value", {"topic": "refused"}, "use string or binary"),
        ("'x' AS value, 9 AS partition", {"topic": "refused"}, "partition 9 of 3"),
        ("'x' AS value, cast(null AS string) AS topic", {}, "1 rows have no topic"),
        ("'x' AS value", {"topic": "refused", "delivery": "sometimes"}, "use exactly-once"),
    ],
)
def test_rows_that_cannot_be_written_are_refused_with_a_remedy(
    spark: SparkSession,
    shared_node: LocalNode,
    columns: str,
    options: dict[str, str],
    message: str,
) -> None:
    frame = spark.range(1).selectExpr(*columns.split(", "))

    async def ensure() -> None:
        async with Admin(shared_node.kafka) as admin:
            if "refused" not in await admin.list_topics():
                await admin.create_topic("refused", partitions=3)

    call(ensure())
    with pytest.raises(PySparkException, match=message):
        save(frame, shared_node, **options)
    assert call(records(shared_node, "refused")) == []


def test_a_frame_whose_task_fails_leaves_nothing(
    spark: SparkSession, shared_node: LocalNode
) -> None:
    call(create(shared_node, "half"))
    frame = spark.range(1000, numPartitions=4).selectExpr(
        "CASE WHEN id = 999 THEN raise_error('the last one') ELSE cast(id AS string) END AS value"
    )
    with pytest.raises(PySparkException, match="the last one"):
        save(frame, shared_node, topic="half")
    assert call(records(shared_node, "half")) == []


def test_a_batch_with_a_name_is_written_once(spark: SparkSession, shared_node: LocalNode) -> None:
    call(create(shared_node, "named"))
    frame = spark.range(100).selectExpr("cast(id AS string) AS value")
    for batch in (0, 0, 1, 1, 0):
        save(frame, shared_node, topic="named", **{"ledger.query": "q-1", "ledger.batch": batch})
    assert len(call(records(shared_node, "named"))) == 200


def copy(spark: SparkSession, node: LocalNode, source: str, target: str, folder: Path) -> int:
    """Copies what there is, in batches; how many rows."""
    frame = (
        spark.readStream.format("mainstem")
        .option("kafka.bootstrap.servers", node.kafka)
        .options(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="250")
        .load()
        .selectExpr("key", "value", "timestamp")
    )
    query = (
        frame.writeStream.format("mainstem")
        .option("kafka.bootstrap.servers", node.kafka)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .option("topic", target)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(100)
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def test_a_stream_from_topic_to_topic_goes_on_where_it_stopped(
    spark: SparkSession, shared_node: LocalNode, tmp_path: Path
) -> None:
    for topic in ("copy-from", "copy-to"):
        call(create(shared_node, topic))
    frame = spark.range(1000).selectExpr("cast(id AS string) AS key", "cast(id AS string) AS value")
    save(frame, shared_node, topic="copy-from")
    assert copy(spark, shared_node, "copy-from", "copy-to", tmp_path) == 1000
    save(frame, shared_node, topic="copy-from")
    assert copy(spark, shared_node, "copy-from", "copy-to", tmp_path) == 1000
    found = sorted(int(record.value or b"") for record in call(records(shared_node, "copy-to")))
    assert found == sorted([*range(1000), *range(1000)])


def undone(folder: Path) -> None:
    """Takes back that Spark has seen the end of the last batch, as a kill at that moment does."""
    commits = sorted((folder / "checkpoint" / "commits").glob("[0-9]*"), key=lambda p: int(p.name))
    commits[-1].unlink()
    for checksum in (folder / "checkpoint" / "commits").glob(f".{commits[-1].name}.crc"):
        checksum.unlink()


def test_a_batch_that_spark_repeats_is_not_written_again(
    spark: SparkSession, shared_node: LocalNode, tmp_path: Path
) -> None:
    for topic in ("again-from", "again-to"):
        call(create(shared_node, topic))
    frame = spark.range(600).selectExpr("cast(id AS string) AS value")
    save(frame, shared_node, topic="again-from")
    copy(spark, shared_node, "again-from", "again-to", tmp_path)
    undone(tmp_path)
    assert copy(spark, shared_node, "again-from", "again-to", tmp_path) > 0
    found = sorted(int(record.value or b"") for record in call(records(shared_node, "again-to")))
    assert found == list(range(600))


def test_a_batch_in_the_ledger_is_completed_by_the_next_start_and_others_are_aborted(
    spark: SparkSession, shared_node: LocalNode, tmp_path: Path
) -> None:
    """The driver died behind the ledger: its transactions are prepared and nobody ended them."""
    for topic in ("crash-from", "crash-to"):
        call(create(shared_node, topic))
    frame = spark.range(100).selectExpr("cast(id AS string) AS value")
    save(frame, shared_node, topic="crash-from")
    copy(spark, shared_node, "crash-from", "crash-to", tmp_path)
    query = json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]
    save(frame, shared_node, topic="crash-from")

    async def crash(number: int) -> None:
        """Writes the next batch as a run that dies: once before the ledger, once behind it."""
        async with Cluster(shared_node.kafka) as cluster:
            entry = await Ledger(cluster).entry(query, "default")
            assert entry is not None
            handles = []
            for name in ("lost", "kept"):
                prefix = f"spark/{query}/default/{name}/0/0"
                async with TransactionalProducer(cluster, prefix, two_phase=True) as producer:
                    producer.begin()
                    await producer.send("crash-to", f"{name} {number}".encode(), partition=0)
                    await producer.prepare()
                    handles.append(producer.handle)
            writer = await LedgerWriter.take_over(cluster, query, "default")
            await writer.record(LedgerEntry(entry.batch + 1, (handles[1],)))
            await writer.close()

    call(crash(1))
    copy(spark, shared_node, "crash-from", "crash-to", tmp_path)
    found = sorted(record.value or b"" for record in call(records(shared_node, "crash-to")))
    assert found == sorted([*(b"%d" % number for number in range(100)), b"kept 1"])

    async def still_open() -> list[str]:
        async with Admin(shared_node.kafka) as admin:
            return [each.id for each in await admin.transactions.list_all(["Ongoing"])]

    assert not [each for each in call(still_open()) if query in each]


def test_a_ledgered_transaction_that_somebody_aborted_is_an_error(shared_node: LocalNode) -> None:
    call(create(shared_node, "meddled"))

    async def meddle() -> None:
        async with Cluster(shared_node.kafka) as cluster:
            name = "spark/meddled/default/run/0/0"
            async with TransactionalProducer(cluster, name, two_phase=True) as producer:
                producer.begin()
                await producer.send("meddled", b"x")
                await producer.prepare()
                handle = producer.handle
            writer = await LedgerWriter.take_over(cluster, "meddled", "default")
            await writer.record(LedgerEntry(4, (handle,)))
            await writer.close()
            await end_transaction(cluster, handle, commit=False)
            with pytest.raises(InvalidRequest, match="its transaction was aborted"):
                await complete(cluster, WrittenBatch("meddled", "default", "next", 4, ()))

    call(meddle())
    assert call(records(shared_node, "meddled")) == []


def test_at_least_once_needs_no_transaction(spark: SparkSession, shared_node: LocalNode) -> None:
    call(create(shared_node, "plain-sink"))
    frame = spark.range(500).selectExpr("cast(id AS string) AS value")
    save(
        frame,
        shared_node,
        topic="plain-sink",
        delivery="at-least-once",
        **{"kafka.compression.type": "lz4"},
    )
    assert len(call(records(shared_node, "plain-sink"))) == 500
