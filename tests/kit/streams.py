"""The streams of one node on real files, to be stopped, killed and started again in one process."""

import asyncio
import os
from pathlib import Path
from typing import Self

from tests.kit.clock import ManualClock

from mainstem.log.disk.group_commit import GroupCommit
from mainstem.log.store import LogStore, StoreSettings
from mainstem.model.config.topic import topic_settings
from mainstem.model.ids import NodeId, TopicId
from mainstem.model.metadata import Node, Topic
from mainstem.model.records.record import Record, build_batch, records_of
from mainstem.placement.changes.commands import CreateTopic
from mainstem.placement.startup_service import Placement, StartupOptions, open_placement
from mainstem.streams.context import NodeContext
from mainstem.streams.service import StreamService
from mainstem.streams.writer.flusher import Flusher
from mainstem.streams.writer.roll_driver import RollDriver
from mainstem.telemetry.metrics import Metrics

TOPIC_ID = TopicId(b"topic of streams")


class StreamNode:
    """Catalogue, log and streams; ``async with`` opens and closes them."""

    def __init__(self, folder: Path, clock: ManualClock | None = None) -> None:
        self.folder = folder
        self.clock = clock or ManualClock()
        self.fatal: list[BaseException] = []
        self.placement: Placement
        self.store: LogStore
        self.streams: StreamService
        self.flusher: Flusher
        self.rolls: RollDriver
        self.commits: GroupCommit

    async def __aenter__(self) -> Self:
        self.store = LogStore(self.folder, StoreSettings(), self.clock)
        start = StartupOptions(
            data=self.folder,
            node=Node(NodeId(1), "127.0.0.1", 9092),
            cluster_id=None,
            directory=self.store.directory_id.hex(),
            scan=list,
        )
        self.placement = await open_placement(start, self.clock, self.fatal.append)
        self.commits = GroupCommit(
            asyncio.get_running_loop(), self.fatal.append, self.store.files.access
        )
        self.rolls = RollDriver(self.placement.service, self.store, self.commits, self.fatal.append)
        self.flusher = Flusher(
            Metrics(), sync=self.commits.request, roll=self.rolls.roll, fatal=self.fatal.append
        )
        self.streams = StreamService(
            NodeContext(
                self.placement.service,
                self.store,
                self.flusher,
                self.clock,
                lambda topic: topic_settings(topic.configs),
                NodeId(1),
            )
        )
        await self.streams.lifecycle.start(self.placement.incarnation)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.rolls.settled()
        await self.commits.drain()
        self.streams.lifecycle.save_producers()
        self.streams.lifecycle.close()
        self.commits.close()
        self.store.close()
        await self.placement.close()
        assert self.fatal == []

    async def crash(self) -> None:
        """Leave everything as it is, as a killed process does; only its locks are gone."""
        self.commits.close()
        os.close(self.store._lock)
        await self.placement.service.close()

    async def create(self, **configs: str) -> Topic:
        """The topic ``t`` with one partition."""
        named = {name.replace("_", "."): value for name, value in configs.items()}
        return await self.placement.service.submit(CreateTopic(TOPIC_ID, "t", 1, 1, named))

    async def write(self, *values: bytes, key: bytes = b"k") -> int:
        """Append one batch; its base offset."""
        records = [Record(0, self.clock.now_ms, key, value) for value in values]
        return await self.streams.append("t", 0, build_batch(records))

    def records(self) -> list[tuple[int, bytes | None]]:
        """Offset and value of every record."""
        stream = self.streams.partition("t", 0)
        offset, found = stream.start_offset, list[tuple[int, bytes | None]]()
        while True:
            part = stream.read(offset, max_bytes=10**6, committed_only=False, min_one=True)
            if part is None:
                return found
            data = memoryview(part.read())
            while data:
                size = 12 + int.from_bytes(data[8:12], "big")
                found += [(r.offset, r.value) for r in records_of(data[:size])]
                data = data[size:]
            offset = part.until_offset
