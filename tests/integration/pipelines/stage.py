"""What the tests of pipelines share: topics to read, sinks that misbehave, a runner in a thread."""

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec import Struct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from mainstem.client.admin import Admin
from mainstem.client.consumer import Consumer, ConsumerSettings
from mainstem.client.producer import Producer
from mainstem.client.values import ConsumerRecord, TopicPartition
from mainstem.pipelines.connector.registry import Registry
from mainstem.pipelines.connector.shapes import ConnectorContext, Finding, failed, passed
from mainstem.pipelines.connector.spec import Category, Spec
from mainstem.pipelines.file.loader import PipelineFile, read_text
from mainstem.pipelines.running.runner import PipelineRunner, RunSummary
from mainstem.pipelines.running.status import PipelineStatus, Status

PATIENCE_S = 150.0


def records(bootstrap: str, topic: str) -> list[ConsumerRecord]:
    """Everything that a reader of committed records can see of a topic."""

    async def read() -> list[ConsumerRecord]:
        async with Admin(bootstrap) as admin:
            described = await admin.describe_topics([topic])
        places = [TopicPartition(topic, index) for index in described[topic].partitions]
        settings = ConsumerSettings(reset="earliest", isolation="read_committed")
        async with Consumer(bootstrap, settings=settings) as consumer:
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

    return asyncio.run(read())


def produce(bootstrap: str, topic: str, values: Sequence[bytes]) -> None:
    async def write() -> None:
        async with Producer(bootstrap) as producer:
            for value in values:
                await producer.send(topic, value)

    asyncio.run(write())


class NoSettings(Struct, frozen=True, forbid_unknown_fields=True):
    pass


class CollectingSink:
    """Keeps values in memory; fails first, or refuses some for good, if told so."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.failures_left = 0
        self.is_reachable = True

    def spec(self) -> Spec:
        return Spec(
            name="collecting",
            kind="sink",
            title="Collecting",
            category=Category.TESTING,
            config=NoSettings,
        )

    def check(self, config: NoSettings) -> list[Finding]:
        if self.is_reachable:
            return [passed("there")]
        return [failed("login refused", "check the password")]

    def write(self, frame: DataFrame, config: NoSettings, context: ConnectorContext) -> Any:
        def keep(batch: DataFrame, batch_id: int) -> None:
            if self.failures_left:
                self.failures_left -= 1
                raise ConnectionRefusedError(111, "the sink is down")
            refused = F.col("value").cast("string").contains("refuse me")
            if context.dead_letters is not None:
                bad = batch.where(refused).withColumn("error", F.lit("never wanted"))
                context.dead_letters.send(bad)
                batch = batch.where(~refused)
            self.values += [bytes(row.value) for row in batch.collect()]

        return frame.writeStream.foreachBatch(keep)


def registry_with(**sinks: CollectingSink) -> Registry:
    """The connectors of the house and some of the test's own."""
    modules = {name: f"mainstem.pipelines.connectors.{name}" for name in ("datagen", "stdout")}
    for name, sink in sinks.items():
        module = ModuleType(f"mainstem_test_sink_{name}")
        module.SINK = sink  # type: ignore[attr-defined]
        sys.modules[module.__name__] = module
        modules[name] = module.__name__
    return Registry(modules)


class Running:
    """A runner in a thread."""

    def __init__(self, runner: PipelineRunner) -> None:
        self._runner = runner
        self._stop = threading.Event()
        self.summary: RunSummary | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.summary = self._runner.run(self._stop, lambda status: None)
        except BaseException as error:  # noqa: BLE001
            self.error = error

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the runner did not stop"
        if self.error is not None:
            raise self.error

    @property
    def status(self) -> Status:
        return self._runner.status

    def pipeline(self, name: str) -> PipelineStatus:
        [found] = [each for each in self.status.pipelines if each.id == name]
        return found

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"waited too long: {self.status}"
            assert self.error is None, self.error
            time.sleep(0.1)


@contextmanager
def running(
    text: str | PipelineFile,
    spark: SparkSession,
    folder: Path,
    registry: Registry | None = None,
) -> Iterator[Running]:
    """Run a pipeline file in this process until the block is left."""
    file = read_text(text, {}, registry, name="test.yaml") if isinstance(text, str) else text
    folder.mkdir(exist_ok=True)
    run = Running(PipelineRunner(file, spark, folder))
    run.start()
    try:
        yield run
    finally:
        run.stop()
