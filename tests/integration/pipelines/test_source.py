"""Topics as Spark tables and streams."""

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.kit.waiting import wait_until

from mainstem.client.admin import Admin
from mainstem.client.producer import Producer, ProducerSettings
from mainstem.client.transactions import TransactionalProducer
from mainstem.client.values import TopicPartition
from mainstem.testing.local_node import LocalNode

# Starting Spark takes a while on a busy machine.
pytestmark = pytest.mark.timeout(300)

START_MS = 1_700_000_000_000


def call(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


async def create(node: LocalNode, topic: str, partitions: int = 2) -> None:
    async with Admin(node.kafka) as admin:
        await admin.create_topic(topic, partitions=partitions)


async def fill(
    node: LocalNode, topic: str, start: int, until: int, *, partitions: int = 2, codec: str = "none"
) -> None:
    settings = ProducerSettings(compression=codec, batch_bytes=2_000)
    async with Producer(node.kafka, settings) as producer:
        for number in range(start, until):
            await producer.send(
                topic,
                None if number % 50 == 7 else b"value %d" % number,
                key=None if number % 10 == 3 else b"key %d" % number,
                partition=number % partitions,
                headers=(("place", b"%d" % number), ("none", None)) if number % 3 else (),
                timestamp_ms=START_MS + number,
            )


def table(spark: SparkSession, node: LocalNode, topic: str, **options: Any) -> DataFrame:
    reader = spark.read.format("mainstem").option("kafka.bootstrap.servers", node.kafka)
    if "assign" not in options and "subscribePattern" not in options:
        options["subscribe"] = topic
    return reader.options(**options).load()


def stream(spark: SparkSession, node: LocalNode, topic: str, **options: Any) -> DataFrame:
    reader = spark.readStream.format("mainstem").option("kafka.bootstrap.servers", node.kafka)
    return reader.options(subscribe=topic, startingOffsets="earliest", **options).load()


def run_available(frame: DataFrame, folder: Path) -> StreamingQuery:
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .option("path", str(folder / "out"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(100)
    return query


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_table_holds_what_was_produced(
    spark: SparkSession, shared_node: LocalNode, codec: str
) -> None:
    topic = f"table-{codec}"
    call(create(shared_node, topic))
    call(fill(shared_node, topic, 0, 500, codec=codec))
    rows = table(spark, shared_node, topic, includeHeaders="true").collect()
    assert len(rows) == 500
    for row in rows:
        number = row.partition + 2 * row.offset
        assert row.topic == topic
        assert row.timestampType == 0
        assert row.timestamp.timestamp() * 1000 == pytest.approx(START_MS + number)
        assert row.value == (None if number % 50 == 7 else b"value %d" % number)
        assert row.key == (None if number % 10 == 3 else b"key %d" % number)
        expected = [("place", b"%d" % number), ("none", None)] if number % 3 else None
        assert (row.headers and [tuple(each) for each in row.headers]) == expected


def test_a_table_is_cut_where_the_options_say(spark: SparkSession, shared_node: LocalNode) -> None:
    call(create(shared_node, "cut-by-options-one"))
    call(create(shared_node, "cut-by-options-two"))
    call(fill(shared_node, "cut-by-options-one", 0, 200))
    call(fill(shared_node, "cut-by-options-two", 0, 100))

    def count(**options: Any) -> int:
        return table(spark, shared_node, "cut-by-options-one", **options).count()

    offsets = json.dumps({"cut-by-options-one": {"0": 90, "1": -2}})
    assert count(startingOffsets=offsets) == 110
    ends = json.dumps({"cut-by-options-one": {"0": 10, "1": -1}})
    assert count(endingOffsets=ends) == 110
    assert count(startingTimestamp=START_MS + 150) == 50
    assert count(endingTimestamp=START_MS + 150) == 150
    times = json.dumps({"cut-by-options-one": {"0": START_MS + 150, "1": START_MS}})
    assert count(startingOffsetsByTimestamp=times) == 125
    assert count(subscribePattern="cut-by-options-.*") == 300
    assert count(assign=json.dumps({"cut-by-options-two": [1]})) == 50
    many = table(spark, shared_node, "cut-by-options-one", minPartitions=8)
    assert many.rdd.getNumPartitions() == 8
    assert many.select("partition", "offset").distinct().count() == 200


def test_plain_values_come_with_their_fields(spark: SparkSession, shared_node: LocalNode) -> None:
    values = [b'{"a": 1, "b": "x", "c": 1.50, "d": null}', b'{"a": {"b": 1}}', b"{", None, b"{}"]

    async def produce() -> None:
        await create(shared_node, "plain-values", 1)
        async with Producer(shared_node.kafka) as producer:
            for value in values:
                await producer.send("plain-values", value)

    call(produce())
    found = table(
        spark, shared_node, "plain-values", includePlainFields="true", includeHeaders="true"
    )
    assert found.columns[-2:] == ["headers", "plainFields"]
    told = found.selectExpr("to_json(plainFields) AS fields", "offset").orderBy("offset").collect()
    assert [row.fields for row in told] == [
        *('{"a":1,"b":"x","c":1.5,"d":null}', None, None, None, "{}"),
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"maxOffsetPerTrigger": "5"}, "did you mean maxoffsetspertrigger"),
        ({"assign": "{}"}, "set exactly one of them"),
        ({"startingOffsets": "{"}, "not a map of offsets"),
        ({"startingTimestamp": str(START_MS * 2)}, "startingOffsetsByTimestampStrategy"),
        ({"endingOffsets": "earliest"}, "cannot end at the earliest"),
        ({"kafka.security.protocol": "TLS"}, "use one of PLAINTEXT"),
        ({"subscribe": "no-such-topic"}, "the topic does not exist"),
    ],
)
def test_options_that_make_no_sense_are_refused_with_a_remedy(
    spark: SparkSession, shared_node: LocalNode, options: dict[str, str], message: str
) -> None:
    call(create(shared_node, "strange")) if "strange" not in topics(shared_node) else None
    wanted = {"subscribe": "strange", **options}
    reader = spark.read.format("mainstem").option("kafka.bootstrap.servers", shared_node.kafka)
    with pytest.raises(PySparkException, match=message):
        reader.options(**wanted).load().count()


def topics(node: LocalNode) -> set[str]:
    async def ask() -> set[str]:
        async with Admin(node.kafka) as admin:
            return set(await admin.list_topics())

    found: set[str] = call(ask())
    return found


def test_a_stream_takes_every_record_once_within_its_limits(
    spark: SparkSession, shared_node: LocalNode, tmp_path: Path
) -> None:
    topic = "stream-limits"
    call(create(shared_node, topic))
    call(fill(shared_node, topic, 0, 300))
    frame = stream(spark, shared_node, topic, maxOffsetsPerTrigger=120)
    query = run_available(frame, tmp_path)
    sizes = [progress["numInputRows"] for progress in query.recentProgress]
    assert sum(sizes) == 300
    assert max(sizes) <= 120
    call(fill(shared_node, topic, 300, 400))
    run_available(frame, tmp_path)
    found = spark.read.parquet(str(tmp_path / "out"))
    assert found.count() == 400
    assert found.select("partition", "offset").distinct().count() == 400


def test_a_reader_of_committed_records_sees_neither_open_nor_aborted_ones(
    spark: SparkSession, shared_node: LocalNode, tmp_path: Path
) -> None:
    topic = "stream-transactions"
    call(create(shared_node, topic, 1))

    async def write() -> TransactionalProducer:
        async with TransactionalProducer(shared_node.kafka, f"{topic}-writer") as producer:
            for turn, ends_well in enumerate([True, False, True, False]):
                producer.begin()
                for number in range(20):
                    await producer.send(topic, b"%d %d" % (turn, number))
                await producer.flush()
                await (producer.commit() if ends_well else producer.abort())
            producer.begin()
            await producer.send(topic, b"open")
            await producer.flush()
            frame = await asyncio.to_thread(
                lambda: table(spark, shared_node, topic).select("value").collect()
            )
            assert {row.value.split()[0] for row in frame} == {b"0", b"2"}
            assert len(frame) == 40
            everything = await asyncio.to_thread(
                lambda: table(
                    spark, shared_node, topic, **{"kafka.isolation.level": "read_uncommitted"}
                ).count()
            )
            assert everything == 81
            return producer

    call(write())
    run_available(stream(spark, shared_node, topic), tmp_path)
    assert spark.read.parquet(str(tmp_path / "out")).count() == 40


def lag(node: LocalNode, group: str) -> int:
    async def ask() -> int:
        async with Admin(node.kafka) as admin:
            return sum(each.lag for each in await admin.groups.lag(group))

    found: int = call(ask())
    return found


def groups(node: LocalNode) -> list[str]:
    async def ask() -> list[str]:
        async with Admin(node.kafka) as admin:
            return [each.id for each in await admin.groups.list_all()]

    found: list[str] = call(ask())
    return found


@pytest.mark.parametrize("named", [True, False])
def test_the_progress_of_a_query_is_the_lag_of_a_group(
    spark: SparkSession, shared_node: LocalNode, tmp_path: Path, named: bool
) -> None:
    topic = f"stream-progress-{named}"
    call(create(shared_node, topic))
    call(fill(shared_node, topic, 0, 100))
    options = {"kafka.group.id": "my-query"} if named else {}
    query = (
        stream(spark, shared_node, topic, **options)
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    group = "my-query" if named else f"spark-{query.id}"
    try:
        for until in (200, 300):
            wait_until(lambda: group in groups(shared_node) and lag(shared_node, group) == 0)
            call(fill(shared_node, topic, until - 100, until))
        wait_until(lambda: lag(shared_node, group) == 0)
    finally:
        query.stop()


def test_a_topic_that_was_trimmed_or_deleted_stops_a_query_or_is_passed_over(
    spark: SparkSession, shared_node: LocalNode, tmp_path: Path
) -> None:
    topic = "stream-loss"
    call(create(shared_node, topic, 1))
    call(fill(shared_node, topic, 0, 100, partitions=1))

    async def trim() -> None:
        async with Admin(shared_node.kafka) as admin:
            await admin.delete_records({TopicPartition(topic, 0): 60})

    begin = json.dumps({topic: {"0": 10}})
    call(trim())
    with pytest.raises(PySparkException, match="offset 10 is gone: the partition has 60 to 100"):
        table(spark, shared_node, topic, startingOffsets=begin).count()
    kept = table(spark, shared_node, topic, startingOffsets=begin, failOnDataLoss="false")
    assert kept.count() == 40
    run_available(stream(spark, shared_node, topic), tmp_path)

    async def create_anew() -> None:
        async with Admin(shared_node.kafka) as admin:
            await admin.delete_topics([topic])

    call(create_anew())
    with pytest.raises(PySparkException, match="does not exist, but a query reads it"):
        run_available(stream(spark, shared_node, topic), tmp_path)
    call(create(shared_node, topic, 1))
    call(fill(shared_node, topic, 0, 5, partitions=1))
    with pytest.raises(PySparkException, match="ends at 5: was the topic re-created"):
        run_available(stream(spark, shared_node, topic), tmp_path)


def test_partitions_that_appear_are_read_from_their_beginning(
    spark: SparkSession, shared_node: LocalNode, tmp_path: Path
) -> None:
    topic = "stream-grows"
    call(create(shared_node, topic, 1))
    call(fill(shared_node, topic, 0, 40, partitions=1))
    run_available(stream(spark, shared_node, topic), tmp_path)

    async def grow() -> None:
        async with Admin(shared_node.kafka) as admin:
            await admin.create_partitions(topic, 2)

    call(grow())
    call(fill(shared_node, topic, 0, 60, partitions=2))
    run_available(stream(spark, shared_node, topic, maxOffsetsPerTrigger=10), tmp_path)
    assert spark.read.parquet(str(tmp_path / "out")).count() == 100
