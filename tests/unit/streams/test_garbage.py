"""Folders that the catalogue let go while the node was away."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mainstem.log.store import LogStore, StoreSettings
from mainstem.model.ids import Epoch, NodeId, Offset, PartitionIndex, StreamId, TopicId
from mainstem.model.metadata import Node
from mainstem.model.records.batch import stamp
from mainstem.model.records.record import Record, build_batch
from mainstem.node.clock import SystemClock
from mainstem.placement.changes import commands
from mainstem.placement.changes.command_and_fact import Command
from mainstem.placement.state.catalogue import Catalogue
from mainstem.streams.maintenance.garbage_driver import GarbageDriver

ONE = NodeId(1)
KNOWN, DELETED, STRANGE = (
    StreamId(TopicId(bytes([number]) * 16), PartitionIndex(0)) for number in (1, 2, 3)
)
NAMES = {KNOWN: "known", DELETED: "deleted", STRANGE: "strange"}


class Folder:
    """A data folder and the catalogue that speaks about it."""

    def __init__(self, path: Path) -> None:
        self.store = LogStore(path, StoreSettings(), SystemClock())
        self.catalogue = Catalogue()
        self.do(commands.RegisterNode(Node(ONE, "h", 1), 1, "disk"))
        for stream in (KNOWN, DELETED):
            self.do(commands.CreateTopic(stream.topic, NAMES[stream], 1, 1))

    def do(self, command: Command[Any]) -> None:
        for fact in self.catalogue.decide(command, 0).facts:
            self.catalogue.replay(fact)

    def write(self, stream: StreamId, index: int, *, close: bool = True) -> None:
        log = self.store.open_range(stream, NAMES[stream], index, epoch=0, start_offset=index)
        batch = build_batch([Record(0, 1, b"k", b"v")])
        stamp(batch, 0, index, 0)
        log.append([(memoryview(batch), index, index + 1, 1)])
        if close:
            log.close()

    def found(self) -> set[tuple[str, int]]:
        return {(one.name.topic_name, one.name.index) for one in self.store.scan()}

    def collect(self) -> int:
        return asyncio.run(GarbageDriver(self.store, self.catalogue, ONE).collect())


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    folder = Folder(tmp_path)
    yield folder
    folder.store.close()


def test_deleted_topics_and_ranges_let_go_are_removed_and_nothing_else(folder: Folder) -> None:
    for stream in (KNOWN, DELETED, STRANGE):
        for index in range(3):
            folder.write(stream, index)
    for index in range(2):
        end = commands.RangeEnd(KNOWN, Epoch(0), folder_last(folder), Offset(index + 1))
        folder.do(commands.SealAndCreate(f"until {index}", end))
    folder.do(commands.TrimStream(KNOWN, Epoch(0), Offset(1)))
    folder.do(commands.DeleteTopic(DELETED.topic))
    assert folder.collect() == 2
    kept = {("known", 1), ("known", 2)}
    assert folder.found() == kept | {("strange", index) for index in range(3)}
    assert folder.collect() == 0


def folder_last(folder: Folder) -> Any:
    stream = folder.catalogue.stream(KNOWN)
    assert stream is not None
    return stream.last.index


def test_what_somebody_has_open_stays(folder: Folder) -> None:
    folder.write(KNOWN, 0, close=False)
    end = commands.RangeEnd(KNOWN, Epoch(0), folder_last(folder), Offset(1))
    folder.do(commands.SealAndCreate("request", end))
    folder.do(commands.TrimStream(KNOWN, Epoch(0), Offset(1)))
    assert folder.collect() == 0
    assert folder.found() == {("known", 0)}
