"""One stream on real files, for stories about its writer."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from tests.kit.clock import ManualClock

from mainstem.log.disk.group_commit import GroupCommit
from mainstem.log.store import LogStore, StoreSettings
from mainstem.model.config.topic import topic_settings
from mainstem.model.ids import Epoch, NodeId, Offset, PartitionIndex, RangeIndex, StreamId, TopicId
from mainstem.model.metadata import Range, Stream, Topic
from mainstem.model.records.record import ProducerStamp, Record, build_batch, records_of
from mainstem.streams.failover.state_recovery import range_log
from mainstem.streams.producers.stream_state import StreamState
from mainstem.streams.writer.flusher import Flusher
from mainstem.streams.writer.stream_driver import StreamWriter
from mainstem.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from mainstem.log.range_log import RangeLog

STREAM_ID = StreamId(TopicId(b"t" * 16), PartitionIndex(0))


def fail(error: OSError) -> None:
    raise error


class SingleStream:
    """One stream with its files, its syncs held back until asked for."""

    def __init__(self, folder: Path, configs: dict[str, str]) -> None:
        self.clock = ManualClock()
        self.store = LogStore(folder, StoreSettings(), self.clock)
        self.to_sync: list[RangeLog] = []
        self.rolls: list[StreamWriter] = []
        self.fatal: list[BaseException] = []
        self.flusher = Flusher(
            Metrics(), sync=self._sync, roll=self.rolls.append, fatal=self.fatal.append
        )
        self.settings = topic_settings(configs)
        first = Range(RangeIndex(0), Offset(0), Epoch(3), (NodeId(1),))
        self.facts = Stream(STREAM_ID, Epoch(3), NodeId(1), Offset(0), (first,))
        self.topic = Topic(STREAM_ID.topic, "t", 0, (self.facts,), configs)
        self.writer = StreamWriter(self.facts, "t", self.settings, self.flusher, self.clock)
        log = range_log(self.store, self.topic, self.facts, first, self.settings)
        self.writer.open_at([log], StreamState())

    def _sync(self, log: "RangeLog") -> None:
        """Held back where a test is about syncs; elsewhere done at once."""
        if self.settings.fsync:
            self.to_sync.append(log)
            return
        log.finish_sync(log.begin_sync())
        for listener in log.sync_listeners:
            listener(log)

    def write(self, *values: bytes, producer: ProducerStamp | None = None) -> int:
        records = [Record(0, self.clock.now_ms, b"k", value) for value in values]
        batch = build_batch(records, producer=producer) if producer else build_batch(records)
        base = self.writer.stage(memoryview(batch), 0, len(batch))
        self.flusher.flush()
        return base

    async def sync(self) -> None:
        commits = GroupCommit(asyncio.get_running_loop(), on_fatal=fail)
        for log in self.to_sync:
            commits.request(log)
        self.to_sync.clear()
        await commits.drain()
        commits.close()

    def values(self, offset: int = 0) -> list[bytes | None]:
        found: list[bytes | None] = []
        while True:
            part = self.writer.read(offset, max_bytes=10**6, committed_only=False, min_one=True)
            if part is None:
                return found
            data = memoryview(part.read())
            while data:
                size = 12 + int.from_bytes(data[8:12], "big")
                found += [r.value for r in records_of(data[:size]) if r.offset >= offset]
                data = data[size:]
            offset = part.until_offset
