"""A store in a temporary directory and batches to put into it."""

import contextlib
import gc
import os
import resource
from collections.abc import Iterator
from pathlib import Path

from tests.kit.clock import ManualClock

from mainstem.log.disk.file_access import FileAccess
from mainstem.log.range_log import RangeLog, SegmentSettings, StagedBatch
from mainstem.log.store import LogStore, StoreSettings
from mainstem.model.ids import PartitionIndex, StreamId, TopicId
from mainstem.model.records.batch import stamp
from mainstem.model.records.record import Record, build_batch

TOPIC = TopicId(bytes(range(16)))
STREAM = StreamId(TOPIC, PartitionIndex(3))
EPOCH = 7


class Disk:
    """One data directory over several lives of a process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        self.boot_id = "boot-1"
        self.access = FileAccess()
        self.alive = False
        self.store = self.start()

    def start(self, *, settle: bool = True) -> LogStore:
        self.alive = True
        settings = StoreSettings(files_open_max=8, boot_id=self.boot_id)
        store = LogStore(self.path, settings, self.clock, self.access)
        if settle:
            store.settle()
        return store

    def open(
        self, config: SegmentSettings | None = None, *, start_offset: int = 0, index: int = 0
    ) -> RangeLog:
        return self.store.open_range(
            STREAM,
            "orders",
            index,
            epoch=EPOCH,
            start_offset=start_offset,
            snapshot=b"state of producers",
            config=config,
        )

    def stop(self) -> None:
        self.alive = False
        self.store.close()

    def kill(self) -> None:
        """The process dies: descriptors go, nothing is written any more."""
        if not self.alive:
            return
        self.alive = False
        os.close(self.store._lock)
        for log in list(self.store.logs.values()):
            log._list.forget()

    def restart(self, *, clean: bool = True, machine_down: bool = False) -> LogStore:
        if clean:
            self.stop()
        else:
            self.kill()
        if machine_down:
            self.boot_id += "x"
        self.store = self.start()
        return self.store


def staged(
    base: int, count: int = 1, *, size: int = 20, timestamp: int = 1_000, codec: int = 0
) -> StagedBatch:
    """One batch of ``count`` records, stamped."""
    value = b"%06d:" % base
    records = [
        Record(place, timestamp + place, b"k%06d" % (base + place), value.ljust(size, b"."))
        for place in range(count)
    ]
    batch = build_batch(records, codec=codec)
    stamp(batch, 0, base, EPOCH)
    return memoryview(batch), base, base + count, timestamp + count - 1


def fill(log: RangeLog, count: int, *, records: int = 1, size: int = 20) -> bytes:
    """Append batches one by one; returns their bytes."""
    written = bytearray()
    for _ in range(count):
        batch = staged(log.written_end, records, size=size, timestamp=log.written_end * 10)
        log.append([batch])
        written += batch[0]
    return bytes(written)


def read_all(log: RangeLog, offset: int | None = None, max_bytes: int = 1 << 20) -> bytes:
    """Everything from an offset on, slice by slice."""
    data = bytearray()
    offset = log.first_offset if offset is None else offset
    while piece := log.read(offset, max_bytes=max_bytes, until=log.written_end, min_one=True):
        data += piece.read()
        assert piece.until_offset > offset
        offset = piece.until_offset
    return bytes(data)


@contextlib.contextmanager
def no_free_descriptors() -> Iterator[None]:
    """Let every call that needs a new descriptor fail with the kernel's own EMFILE."""
    gc.collect()  # files of earlier tests that wait for it would free descriptors in between
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
