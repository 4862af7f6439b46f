"""Two drivers of one query on one checkpoint: one is paused, the other takes over."""

import asyncio
import uuid
from collections.abc import Collection

import pytest

from mainstem.client.admin import Admin
from mainstem.client.cluster import Cluster
from mainstem.client.consumer import Consumer, ConsumerSettings
from mainstem.client.transactions import TransactionalProducer, TransactionHandle
from mainstem.client.values import TopicPartition
from mainstem.model.errors import ErrorCode, Fenced
from mainstem.pipelines.spark.writing import completion
from mainstem.pipelines.spark.writing.completion import WrittenBatch, complete, give_up
from mainstem.pipelines.spark.writing.ledger import Ledger, LedgerEntry, LedgerWriter, id_prefix
from mainstem.testing.local_node import LocalNode

SINK = "default"
ATTEMPT_S = 60


class Pause:
    """A point that a driver reaches, and where it stands until it may go on."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.over = asyncio.Event()

    async def stand(self) -> None:
        self.reached.set()
        await self.over.wait()


class Scene:
    """A query whose batches go to one topic, and drivers with connections of their own."""

    def __init__(self, node: LocalNode) -> None:
        mark = uuid.uuid4().hex[:8]
        self.node = node
        self.topic = f"two-{mark}"
        self.query = f"query-{mark}"

    async def create(self) -> None:
        async with Admin(self.node.kafka) as admin:
            await admin.create_topic(self.topic, partitions=1)

    async def batch(self, cluster: Cluster, run: str, number: int, tasks: int = 2) -> WrittenBatch:
        """What tasks of a run have written of a batch and left prepared."""
        handles = []
        for task in range(tasks):
            name = f"{id_prefix(self.query, SINK)}{run}/{task}/0"
            async with TransactionalProducer(cluster, name, two_phase=True) as producer:
                producer.begin()
                await producer.send(self.topic, f"{number} {task} by {run}".encode(), partition=0)
                await producer.prepare()
                handles.append(producer.handle)
        return WrittenBatch(self.query, SINK, run, number, tuple(handles))

    async def seen(self) -> list[str]:
        """What readers of committed records see; they wait for open transactions."""
        settings = ConsumerSettings(reset="earliest", isolation="read_committed")
        place = TopicPartition(self.topic, 0)
        async with Consumer(self.node.kafka, settings=settings) as consumer:
            end = (await consumer.offsets({place: -1}))[place].offset
            consumer.assign([place])
            consumer.seek(place, 0)
            found = []
            async with asyncio.timeout(ATTEMPT_S):
                while await consumer.position(place) < end:
                    found += [each.value for each in await consumer.poll(500, 1_000)]
        return sorted(value.decode() for value in found if value is not None)

    async def open_ids(self) -> list[str]:
        async with Admin(self.node.kafka) as admin:
            listed = await admin.transactions.list_all(["Ongoing"])
        return [each.id for each in listed if self.query in each.id]


def written(number: int, run: str) -> list[str]:
    return [f"{number} {task} by {run}" for task in range(2)]


def pause_record(
    patch: pytest.MonkeyPatch, *, before: Pause | None = None, after: Pause | None = None
) -> None:
    """Lets the next driver stand before or behind its record of a batch; later ones go on."""
    real = LedgerWriter

    class Paused(real):  # type: ignore[misc, valid-type]
        async def record(self, entry: LedgerEntry) -> None:
            patch.setattr(completion, "LedgerWriter", real)
            if before is not None:
                await before.stand()
            await super().record(entry)
            if after is not None:
                await after.stand()

    patch.setattr(completion, "LedgerWriter", Paused)


async def reach(pause: Pause, driver: asyncio.Task[None]) -> None:
    """Waits until a driver stands at a point; one that fails before is the test's failure."""
    waiting = asyncio.ensure_future(pause.reached.wait())
    async with asyncio.timeout(ATTEMPT_S):
        await asyncio.wait({waiting, driver}, return_when=asyncio.FIRST_COMPLETED)
    if not pause.reached.is_set():
        await driver


async def test_a_driver_paused_before_its_record_is_refused_when_it_goes_on(
    shared_node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, pause = Scene(shared_node), Pause()
    await scene.create()
    async with Cluster(shared_node.kafka) as one, Cluster(shared_node.kafka) as other:
        mine = await scene.batch(one, "first", 0)
        pause_record(monkeypatch, before=pause)
        driver = asyncio.create_task(complete(one, mine))
        await reach(pause, driver)

        await complete(other, await scene.batch(other, "second", 0))
        pause.over.set()
        with pytest.raises(Fenced) as refused:
            await driver
        assert refused.value.code is ErrorCode.FENCED_PRODUCER
        await give_up(one, mine)
        await complete(other, await scene.batch(other, "second", 1))

        entry = await Ledger(one).entry(scene.query, SINK)
        assert entry is not None
        assert entry.batch == 1
    assert await scene.seen() == [*written(0, "second"), *written(1, "second")]
    assert await scene.open_ids() == []


async def test_a_batch_that_a_paused_driver_has_recorded_is_completed_and_not_written_again(
    shared_node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, pause = Scene(shared_node), Pause()
    await scene.create()
    async with Cluster(shared_node.kafka) as one, Cluster(shared_node.kafka) as other:
        mine = await scene.batch(one, "first", 0)
        yours = await scene.batch(other, "second", 0)
        pause_record(monkeypatch, after=pause)
        driver = asyncio.create_task(complete(one, mine))
        await reach(pause, driver)

        await complete(other, yours)
        pause.over.set()
        await driver
        with pytest.raises(Fenced):
            await complete(one, await scene.batch(one, "first", 1))
    assert await scene.seen() == written(0, "first")


async def test_a_driver_that_takes_over_reads_what_was_recorded_until_then(
    shared_node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second driver stands before it reads; the first has half of its batch committed."""

    scene, reading = Scene(shared_node), Pause()
    await scene.create()
    real = LedgerWriter.take_over

    async def slowly(cluster: Cluster, query: str, sink: str) -> LedgerWriter:
        monkeypatch.setattr(LedgerWriter, "take_over", real)
        await reading.stand()
        return await real(cluster, query, sink)

    async with Cluster(shared_node.kafka) as one, Cluster(shared_node.kafka) as other:
        mine = await scene.batch(one, "first", 0)
        yours = await scene.batch(other, "second", 0)
        monkeypatch.setattr(LedgerWriter, "take_over", slowly)
        driver = asyncio.create_task(complete(other, yours))
        await reach(reading, driver)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(completion, "_commit", half_of(completion._commit))
            await complete(one, mine)
        reading.over.set()
        await driver
    assert await scene.seen() == written(0, "first")
    assert await scene.open_ids() == []


def half_of(commit: object) -> object:
    """Commits the first transaction of a batch only, as a driver that dies then does."""

    async def commit_first(cluster: Cluster, handles: Collection[TransactionHandle]) -> None:
        await commit(cluster, list(handles)[:1])  # type: ignore[operator]

    return commit_first


async def test_a_late_abort_does_not_end_what_another_driver_has_recorded(
    shared_node: LocalNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, aborting, recorded = Scene(shared_node), Pause(), Pause()
    await scene.create()
    real = completion._abort

    async def late(cluster: Cluster, doomed: Collection[TransactionHandle]) -> None:
        monkeypatch.setattr(completion, "_abort", real)
        assert doomed, "the first driver has seen what the second one has prepared"
        await aborting.stand()
        await real(cluster, doomed)

    async with Cluster(shared_node.kafka) as one, Cluster(shared_node.kafka) as other:
        mine = await scene.batch(one, "first", 0)
        yours = await scene.batch(other, "second", 1)
        monkeypatch.setattr(completion, "_abort", late)
        first = asyncio.create_task(complete(one, mine))
        await reach(aborting, first)
        pause_record(monkeypatch, after=recorded)
        second = asyncio.create_task(complete(other, yours))
        await reach(recorded, second)

        aborting.over.set()
        await first
        recorded.over.set()
        await second
    assert await scene.seen() == [*written(0, "first"), *written(1, "second")]
