"""A topic as a table: Arrow, pandas, Polars, Parquet, and the command that writes one."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mainstem.client.admin import Admin
from mainstem.client.cluster import Cluster
from mainstem.client.consuming.range_reader import RangeReader, RecordsTrimmed
from mainstem.client.producer import Producer, ProducerSettings
from mainstem.client.table import TableSettings, to_arrow, to_pandas, to_parquet, to_polars
from mainstem.client.transactions import TransactionalProducer, end_transaction
from mainstem.client.values import TopicPartition
from mainstem.model.errors import InvalidRequest
from mainstem.model.records.columns import EncodedRecords
from mainstem.model.records.record import Record, encode_record
from mainstem.testing.local_node import LocalNode

START_MS = 1_700_000_000_000


async def fill(node: LocalNode, topic: str, count: int, *, partitions: int = 2) -> None:
    async with Admin(node.kafka) as admin:
        await admin.create_topic(topic, partitions=partitions)
    async with Producer(node.kafka, ProducerSettings(compression="lz4")) as producer:
        for number in range(count):
            await producer.send(
                topic,
                b"value %d" % number,
                key=None if number % 3 else b"key %d" % number,
                partition=number % partitions,
                headers=[("n", b"%d" % number)] if number % 2 else (),
                timestamp_ms=START_MS + number,
            )


async def test_a_table_has_every_record_in_every_form(
    shared_node: LocalNode, tmp_path: Path
) -> None:
    await fill(shared_node, "tabular", 1_000)
    table = await to_arrow(shared_node.kafka, "tabular", TableSettings(with_headers=True))
    assert table.num_rows == 1_000
    for row in table.to_pylist()[::37]:
        number = row["partition"] + 2 * row["offset"]
        assert row["value"] == b"value %d" % number
        assert row["key"] == (None if number % 3 else b"key %d" % number)
        headers = [{"key": "n", "value": b"%d" % number}] if number % 2 else None
        assert row["headers"] == headers
    frame = await to_pandas(shared_node.kafka, "tabular")
    assert frame["offset"].sum() == 2 * sum(range(500))
    polars = await to_polars(shared_node.kafka, "tabular")
    assert polars["value"].n_unique() == 1_000
    rows = await to_parquet(shared_node.kafka, "tabular", tmp_path / "t.parquet")
    assert rows == 1_000
    assert pq.read_table(tmp_path / "t.parquet").num_rows == 1_000
    left = [path.name for path in tmp_path.iterdir()]  # noqa: ASYNC240 - nothing else runs
    assert left == ["t.parquet"]


async def test_a_table_is_cut_by_time_and_partition(shared_node: LocalNode) -> None:
    async def rows(settings: TableSettings) -> int:
        table: pa.Table = await to_arrow(shared_node.kafka, "cut-table", settings)
        return int(table.num_rows)

    await fill(shared_node, "cut-table", 200)
    assert await rows(TableSettings(since_ms=START_MS + 150)) == 50
    assert await rows(TableSettings(before_ms=START_MS + 150)) == 150
    assert await rows(TableSettings(since_ms=START_MS + 10_000)) == 0
    assert await rows(TableSettings(partitions=[1])) == 100
    with pytest.raises(InvalidRequest, match="no partition 7"):
        await rows(TableSettings(partitions=[7]))


def test_the_command_writes_a_parquet_file(shared_node: LocalNode, tmp_path: Path) -> None:
    asyncio.run(fill(shared_node, "exported", 300))
    target = tmp_path / "exported.parquet"
    command = [str(Path(sys.executable).with_name("mainstem")), "consume", "exported"]
    command += ["--bootstrap", shared_node.kafka, "--to-parquet", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert f"300 records written to {target}" in done.stderr
    assert pq.read_table(target).column("value").to_pylist()[0] == b"value 0"
    done = subprocess.run(
        [*command, "--follow"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0
    assert "all records of one topic" in done.stderr


async def test_a_range_that_was_trimmed_says_what_is_left(shared_node: LocalNode) -> None:
    place = TopicPartition("trimmed", 0)

    await fill(shared_node, "trimmed", 100, partitions=1)
    async with Cluster(shared_node.kafka) as cluster:
        async with Admin(shared_node.kafka) as admin:
            await admin.delete_records({place: 40})
        await cluster.topics(["trimmed"])
        with pytest.raises(RecordsTrimmed, match="offset 5 is gone: the partition has 40 to 100"):
            async for _ in RangeReader(cluster, place, 5, 50).batches():
                pass
        with pytest.raises(RecordsTrimmed, match="has 40 to 100"):
            async for _ in RangeReader(cluster, place, 90, 150).batches():
                pass


def encoded(count: int, size: int) -> EncodedRecords:
    body = bytearray()
    for number in range(count):
        encode_record(body, number, number, Record(0, 0, b"%d" % number, bytes(size)))
    return EncodedRecords(bytes(body), count, START_MS, START_MS + count - 1)


async def test_encoded_records_that_are_too_large_together_are_sent_in_parts(
    shared_node: LocalNode,
) -> None:
    async with Admin(shared_node.kafka) as admin:
        await admin.create_topic(
            "small-batches", partitions=1, configs={"max.message.bytes": "10000"}
        )
    async with Producer(shared_node.kafka) as producer:
        await producer.partitions_of("small-batches")
        for _ in range(3):
            await producer.send_encoded(TopicPartition("small-batches", 0), encoded(50, 1_000))
        await producer.flush()
    table = await to_arrow(shared_node.kafka, "small-batches")
    assert table.column("key").to_pylist() == [b"%d" % n for n in range(50)] * 3


async def test_a_prepared_transaction_is_ended_by_whoever_has_its_handle(
    shared_node: LocalNode,
) -> None:
    await fill(shared_node, "handed-on", 0, partitions=1)
    async with Cluster(shared_node.kafka) as cluster:
        handles = []
        for name in ("kept", "dropped"):
            async with TransactionalProducer(cluster, name, two_phase=True) as producer:
                producer.begin()
                place = TopicPartition("handed-on", 0)
                await producer.partitions_of("handed-on")
                await producer.send_encoded(place, encoded(5, 10))
                await producer.prepare()
                handles.append(producer.handle)
        for _ in range(2):  # asking again changes nothing
            await end_transaction(cluster, handles[0], commit=True)
            await end_transaction(cluster, handles[1], commit=False)
        with pytest.raises(InvalidRequest):
            await end_transaction(cluster, handles[1], commit=True)
    table = await to_arrow(shared_node.kafka, "handed-on")
    assert table.num_rows == 5
