"""Compaction keeps what a dictionary would keep, over any number of passes."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.clock import ManualClock

from mainstem.log.cleaning.batch_filter import horizon_of
from mainstem.log.cleaning.compaction import CompactionJob, compact, read_mark, stored_batches
from mainstem.log.cleaning.key_map import ENTRY_BYTES
from mainstem.log.range_log import RangeLog, SegmentSettings
from mainstem.log.store import LogStore, StoreSettings
from mainstem.model.ids import PartitionIndex, StreamId, TopicId
from mainstem.model.records.batch import read_header, stamp
from mainstem.model.records.record import Record, batches_of, build_batch, records_of

STREAM = StreamId(TopicId(bytes(16)), PartitionIndex(0))
EPOCH = 3

keys = st.sampled_from([b"a", b"b", b"c", b"a long key with more than sixteen bytes", b""])
values = st.none() | st.binary(max_size=30)
batch_contents = st.lists(st.tuples(keys, values), min_size=1, max_size=5)
ranges = st.lists(st.lists(batch_contents, min_size=1, max_size=5), min_size=1, max_size=4)


def write_ranges(
    store: LogStore, contents: list[list[list[tuple[bytes, bytes | None]]]], codec: int
) -> tuple[list[RangeLog], list[Record]]:
    logs = []
    records: list[Record] = []
    offset = 0
    for index, batches in enumerate(contents):
        log = store.open_range(
            STREAM, "t", index, epoch=EPOCH, start_offset=offset, config=SegmentSettings(400)
        )
        for content in batches:
            placed = [
                Record(offset + place, 1_000 + offset + place, key, value)
                for place, (key, value) in enumerate(content)
            ]
            batch = build_batch(placed, codec=codec)
            stamp(batch, 0, offset, EPOCH)
            until = offset + len(content)
            log.append([(memoryview(batch), offset, until, placed[-1].timestamp)])
            records += placed
            offset = until
        log.seal()
        logs.append(log)
    return logs, records


def read_back(logs: list[RangeLog]) -> list[Record]:
    records: list[Record] = []
    for log in logs:
        offset = log.start_offset
        while piece := log.read(offset, max_bytes=300, until=log.written_end, min_one=True):
            for _, batch in batches_of(piece.read()):
                records += records_of(batch)
            offset = piece.until_offset
        assert offset == log.written_end
    return records


def swap(store: LogStore, logs: list[RangeLog], job: CompactionJob) -> list[RangeLog]:
    results = compact(job)
    swapped = []
    for log, result in zip(logs, results, strict=True):
        if result.target is None:
            swapped.append(log)
            continue
        name = log.identity.name
        fresh = store.open_range(
            STREAM,
            "t",
            name.index,
            epoch=EPOCH,
            start_offset=log.start_offset,
            generation=name.generation + 1,
        )
        assert fresh.sealed
        assert fresh.damage == []
        assert fresh.verify() == []
        assert fresh.written_end == log.written_end
        assert fresh.size_bytes == result.size_bytes
        assert fresh.max_timestamp == result.max_timestamp
        store.drop_range(log)
        swapped.append(fresh)
    while store.sweep():
        pass
    return swapped


@settings(max_examples=60, deadline=None)
@given(
    contents=ranges,
    codec=st.integers(0, 4),
    entries=st.integers(1, 10),
    retention_ms=st.integers(0, 50),
)
def test_the_last_record_of_each_key_stays_and_tombstones_go_after_their_time(
    contents: list[list[list[tuple[bytes, bytes | None]]]],
    codec: int,
    entries: int,
    retention_ms: int,
) -> None:
    memory = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    store = LogStore(directory / "data", StoreSettings(boot_id="b"), ManualClock())
    try:
        logs, records = write_ranges(store, contents, codec)
        end = logs[-1].written_end
        latest = {record.key: record for record in records}
        expected = sorted(latest.values())
        now = 5_000
        dirty_from = 0
        passes = 0
        while dirty_from < end:
            job = CompactionJob(
                tuple(log.directory for log in logs),
                dirty_from,
                end,
                now,
                retention_ms,
                segment_bytes=400,
                key_map_bytes=entries * ENTRY_BYTES,
            )
            logs = swap(store, logs, job)
            covered = max(mark.clean_until for log in logs if (mark := read_mark(log.directory)))
            assert covered > dirty_from
            dirty_from = covered
            passes += 1
            assert passes < 100
        held = read_back(logs)
        # All passes had the same clock: a tombstone goes only if it need not be kept at all.
        kept = [record for record in expected if record.value is not None or retention_ms]
        assert [record for record in held if record.value is not None or retention_ms] == kept
        job = CompactionJob(
            tuple(log.directory for log in logs), end, end, now + retention_ms, retention_ms
        )
        logs = swap(store, logs, job)
        assert read_back(logs) == [record for record in expected if record.value is not None]
        for log in logs:
            mark = read_mark(log.directory)
            assert mark is not None
            assert mark.horizon_ms is None  # or the next pass would be due at once, for ever
            for header, data in stored_batches(log.directory):
                assert read_header(data) == header
                assert horizon_of(header) is None or header.record_count
    finally:
        store.close()
        shutil.rmtree(directory)
