"""Topic to topic through Spark, killed again and again: every record once, in order per key.

``MAINSTEM_KILLS=20`` makes it twenty kills instead of three.
"""

import asyncio
import contextlib
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from mainstem.client.admin import Admin
from mainstem.client.consumer import Consumer, ConsumerSettings
from mainstem.client.producer import Producer
from mainstem.client.values import TopicPartition
from mainstem.testing.local_node import LocalNode

JOB = Path(__file__).with_name("copy_job.py")
ROUNDS = int(os.environ.get("MAINSTEM_KILLS", "3"))
BATCHES_PER_ROUND = 4
ROWS = 60 * (BATCHES_PER_ROUND + 14) * (ROUNDS + 1)
KEYS = 50
PARTITIONS = 3
START_TIMEOUT_S = 100

Content = dict[bytes, list[bytes]]


async def _prepare(node: LocalNode, source: str, target: str) -> None:
    async with Admin(node.kafka) as admin:
        for topic in (source, target):
            await admin.create_topic(topic, partitions=PARTITIONS)
    async with Producer(node.kafka) as producer:
        for number in range(ROWS):
            await producer.send(source, b"%d" % number, key=b"key %d" % (number % KEYS))


async def _content(node: LocalNode, topic: str) -> Content:
    """The values of every key in their order, as a reader of committed records sees them."""
    settings = ConsumerSettings(isolation="read_committed", partition_bytes_max=8 << 20)
    found: Content = defaultdict(list)
    async with Consumer(node.kafka, settings=settings) as consumer:
        places = [TopicPartition(topic, index) for index in range(PARTITIONS)]
        ends = await consumer.offsets(dict.fromkeys(places, -1))
        consumer.assign(places)
        for place in places:
            consumer.seek(place, 0)
        waiting = set(places)
        while waiting:
            for record in await consumer.poll(1_000, 10_000):
                found[record.key or b""].append(record.value or b"")
            waiting = {p for p in waiting if await consumer.position(p) < ends[p].offset}
    return found


def _finish(spark: SparkSession, node: LocalNode, source: str, target: str, folder: Path) -> None:
    """Copies the rest, with the same checkpoint."""
    rows = (
        spark.readStream.format("mainstem")
        .option("kafka.bootstrap.servers", node.kafka)
        .options(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="2000")
        .load()
    )
    query = (
        rows.select("key", "value", "timestamp")
        .writeStream.format("mainstem")
        .options(**{"kafka.bootstrap.servers": node.kafka, "topic": target})
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(110)


def _batches(folder: Path) -> int:
    """How many batches Spark has seen to their end."""
    return len(list((folder / "checkpoint" / "commits").glob("[0-9]*")))


@contextlib.contextmanager
def _job(node: LocalNode, source: str, target: str, folder: Path) -> Iterator[psutil.Process]:
    """The driver, its Java and its Python workers; all of them are killed at the end."""
    command = [sys.executable, str(JOB), node.kafka, source, target, str(folder)]
    with (folder / "job.log").open("ab") as log:
        started = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    process = psutil.Process(started.pid)
    try:
        yield process
    finally:
        family = [process, *process.children(recursive=True)]
        for member in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        started.wait()
        psutil.wait_procs(family[1:], timeout=30)


def _await_batches(process: psutil.Process, folder: Path, wanted: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while _batches(folder) < wanted:
        assert process.is_running(), (folder / "job.log").read_text()[-2_000:]
        assert process.status() != psutil.STATUS_ZOMBIE, (folder / "job.log").read_text()[-2_000:]
        assert time.monotonic() < deadline, (folder / "job.log").read_text()[-2_000:]
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_record_arrives_once_although_spark_is_killed(
    spark: SparkSession, shared_node: LocalNode, tmp_path: Path
) -> None:
    source, target = "kill-from", "kill-to"
    asyncio.run(_prepare(shared_node, source, target))
    chance = random.Random(4)
    for _ in range(ROUNDS):
        done = _batches(tmp_path)
        with _job(shared_node, source, target, tmp_path) as process:
            _await_batches(process, tmp_path, done + BATCHES_PER_ROUND)
            time.sleep(chance.uniform(0, 0.4))
    assert sum(map(len, asyncio.run(_content(shared_node, target)).values())) < ROWS
    _finish(spark, shared_node, source, target, tmp_path)
    assert asyncio.run(_content(shared_node, target)) == asyncio.run(_content(shared_node, source))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_record_arrives_once_although_the_node_is_killed(
    spark: SparkSession, fresh_node: LocalNode, tmp_path: Path
) -> None:
    source, target = "node-from", "node-to"
    asyncio.run(_prepare(fresh_node, source, target))
    rows = (
        spark.readStream.format("mainstem")
        .option("kafka.bootstrap.servers", fresh_node.kafka)
        .options(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="60")
        .load()
    )
    query = (
        rows.select("key", "value", "timestamp")
        .writeStream.format("mainstem")
        .options(**{"kafka.bootstrap.servers": fresh_node.kafka, "topic": target})
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    chance = random.Random(5)
    for _ in range(ROUNDS):
        done = _batches(tmp_path)
        deadline = time.monotonic() + START_TIMEOUT_S
        while _batches(tmp_path) < done + BATCHES_PER_ROUND:
            assert query.isActive, query.exception()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(chance.uniform(0, 0.3))
        fresh_node.kill9()
        fresh_node.start()
    query.stop()
    _finish(spark, fresh_node, source, target, tmp_path)
    assert asyncio.run(_content(fresh_node, target)) == asyncio.run(_content(fresh_node, source))
