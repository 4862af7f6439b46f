"""The running catalogue: order, shared syncs, listeners, failure."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.kit.clock import ManualClock

from mainstem.model.errors import ErrorCode, InvalidRequest, Unavailable
from mainstem.model.ids import NodeId, TopicId
from mainstem.model.limits import COMMANDS_WAITING_MAX
from mainstem.model.metadata import Node, Topic
from mainstem.placement.changes import commands
from mainstem.placement.changes.commands import AnyFact
from mainstem.placement.persistence.journal_storage import JournalStorage
from mainstem.placement.service import LonePlacementService, replayed
from mainstem.placement.state.catalogue import Catalogue

NODE = Node(NodeId(1), "host", 9092)


class MemoryJournal:
    """Commits when it is told to; ``failure`` is what the next append raises."""

    def __init__(self) -> None:
        self.appends: list[list[bytes]] = []
        self.failure: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.snapshots: list[bytes] = []
        self.snapshot_due = False

    @property
    def next_index(self) -> int:
        return len(self.appends) + 1

    async def append(self, entries: Sequence[bytes]) -> None:
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        self.appends.append(list(entries))

    async def snapshot(self, state: bytes) -> None:
        self.snapshots.append(state)
        self.snapshot_due = False

    def close(self) -> None:
        pass


class PlacementNode:
    def __init__(self) -> None:
        self.journal = MemoryJournal()
        self.fatal: list[BaseException] = []
        self.service = LonePlacementService(
            self.journal, Catalogue(), ManualClock(), self.fatal.append
        )


async def started() -> PlacementNode:
    node = PlacementNode()
    await node.service.submit(commands.RegisterNode(NODE, 1, "dir"))
    node.journal.appends.clear()
    return node


def create(name: str) -> commands.CreateTopic:
    return commands.CreateTopic(TopicId(name.encode().ljust(16, b".")), name, 1, 1)


async def test_a_reply_comes_once_the_facts_are_durable_and_listeners_know() -> None:
    node = await started()
    heard: list[AnyFact] = []
    node.service.subscribe(heard.append)
    node.journal.gate.clear()
    waiting = asyncio.create_task(node.service.submit(create("t")))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert node.service.catalogue.topic("t") is None, "nothing is shown before it is durable"
    assert not waiting.done()
    node.journal.gate.set()
    topic = await waiting
    assert node.service.catalogue.topic("t") == topic
    assert [type(fact) for fact in heard] == [commands.TopicCreated]


async def test_commands_that_come_together_share_one_append() -> None:
    node = await started()
    names = [f"t{number}" for number in range(50)]
    topics = await asyncio.gather(*(node.service.submit(create(name)) for name in names))
    assert [topic.name for topic in topics] == names
    assert [len(entries) for entries in node.journal.appends] == [50]


async def test_commands_that_share_an_append_are_decided_one_after_the_other() -> None:
    node = await started()
    first, second = create("t"), create("t")
    outcomes = await asyncio.gather(
        node.service.submit(first),
        node.service.submit(second),
        node.service.submit(commands.DeleteTopic(first.id)),
        return_exceptions=True,
    )
    assert isinstance(outcomes[0], Topic)
    assert isinstance(outcomes[1], InvalidRequest)
    assert outcomes[1].code is ErrorCode.TOPIC_EXISTS
    assert outcomes[2] is None
    assert node.service.catalogue.topic("t") is None


async def test_checking_a_command_answers_and_does_nothing() -> None:
    node = await started()
    assert node.service.check(create("t")).name == "t"
    assert node.service.catalogue.topic("t") is None
    with pytest.raises(InvalidRequest):
        node.service.check(create("no/slash"))


async def test_a_full_disk_refuses_and_changes_nothing() -> None:
    node = await started()
    node.journal.failure = Unavailable(ErrorCode.DISK_FULL)
    with pytest.raises(Unavailable):
        await node.service.submit(create("t"))
    node.journal.failure = None
    assert node.service.catalogue.topic("t") is None
    await node.service.submit(create("t"))
    assert not node.fatal


async def test_a_failed_journal_stops_the_node_and_leaves_nobody_waiting() -> None:
    node = await started()
    node.journal.failure = OSError("disk gone")
    node.journal.gate.clear()
    early = asyncio.create_task(node.service.submit(create("a")))
    await asyncio.sleep(0)
    late = asyncio.create_task(node.service.submit(create("b")))
    await asyncio.sleep(0)
    node.journal.gate.set()
    outcomes = await asyncio.gather(early, late, return_exceptions=True)
    assert all(isinstance(outcome, Unavailable) for outcome in outcomes)
    assert [str(error) for error in node.fatal] == ["disk gone"]
    with pytest.raises(Unavailable):
        await node.service.submit(create("c"))


async def test_after_an_append_whose_outcome_is_unknown_nothing_is_decided(tmp_path: Path) -> None:
    broken = False

    def sync(fd: int) -> None:
        if broken:
            raise OSError(5, "the disk is broken")
        os.fdatasync(fd)

    journal = JournalStorage(tmp_path, sync=sync)
    fatal: list[BaseException] = []
    catalogue = replayed(journal.open(), "the journal")
    service = LonePlacementService(journal, catalogue, ManualClock(), fatal.append)
    await service.submit(commands.RegisterNode(NODE, 1, "dir"))
    broken = True
    with pytest.raises(Unavailable):
        await service.submit(create("t"))
    broken = False
    for command in (create("t"), create("u")):
        with pytest.raises(Unavailable):
            await service.submit(command)
    assert catalogue.topic("t") is None
    assert len(fatal) == 1
    await service.close()
    again = JournalStorage(tmp_path)
    names = [topic.name for topic in replayed(again.open(), "the journal").topics()]
    again.close()
    assert names in ([], ["t"]), "it was recorded or not, and nothing came after it"


async def test_a_listener_that_fails_stops_the_node() -> None:
    node = await started()

    def broken(fact: AnyFact) -> None:
        raise ValueError(f"cannot take {fact}")

    node.service.subscribe(broken)
    with pytest.raises(Unavailable):
        await node.service.submit(create("t"))
    await asyncio.sleep(0)
    assert isinstance(node.fatal[0], ValueError)


async def test_a_caller_that_gives_up_does_not_take_the_command_back() -> None:
    node = await started()
    node.journal.gate.clear()
    waiting = asyncio.create_task(node.service.submit(create("t")))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    node.journal.gate.set()
    await node.service.submit(create("u"))
    assert node.service.catalogue.topic("t") is not None


async def test_too_many_waiting_commands_are_refused() -> None:
    node = await started()
    node.journal.gate.clear()
    tasks: list[asyncio.Task[Any]] = [
        asyncio.create_task(node.service.submit(commands.FormCluster("c")))
        for _ in range(COMMANDS_WAITING_MAX + 1)
    ]
    tasks.append(asyncio.create_task(node.service.submit(create("t"))))
    await asyncio.sleep(0)
    refused = [task for task in tasks if task.done()]
    assert refused
    error = refused[0].exception()
    assert isinstance(error, Unavailable)
    assert error.code is ErrorCode.OVERLOADED
    node.journal.gate.set()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_snapshot_is_taken_when_it_is_due() -> None:
    node = await started()
    node.journal.snapshot_due = True
    await node.service.submit(create("t"))
    await node.service.close()
    [state] = node.journal.snapshots
    assert b'"name":"t"' in state


async def test_closing_finishes_what_was_submitted() -> None:
    node = await started()
    waiting = asyncio.create_task(node.service.submit(create("t")))
    await asyncio.sleep(0)
    await node.service.close()
    assert (await waiting).name == "t"
    with pytest.raises(Unavailable):
        await node.service.submit(create("u"))


async def test_a_listener_may_leave() -> None:
    node = await started()
    heard: list[AnyFact] = []
    leave = node.service.subscribe(heard.append)
    leave()
    await node.service.submit(create("t"))
    assert not heard


async def test_a_catalogue_on_disk_survives_restarts_and_snapshots(tmp_path: Path) -> None:
    async def life(number: int) -> Catalogue:
        journal = JournalStorage(tmp_path, snapshot_after_bytes=2_000)
        catalogue = replayed(journal.open(), "the journal")
        fatal: list[BaseException] = []
        service = LonePlacementService(journal, catalogue, ManualClock(), fatal.append)
        await service.submit(commands.RegisterNode(NODE, number, "dir"))
        for at in range(10):
            await service.submit(create(f"t{number}-{at}"))
        await service.close()
        assert not fatal
        return catalogue

    for number in range(1, 6):
        before = await life(number)
        journal = JournalStorage(tmp_path)
        after = replayed(journal.open(), "the journal")
        journal.close()
        assert after.state() == before.state()
        assert len(list(after.topics())) == 10 * number
    assert (tmp_path / "snapshot").exists()
    assert (tmp_path / "journal").stat().st_size < 20_000
