"""When to compact, and what stays."""

import errno
import os
from pathlib import Path

import pytest
from tests.kit.log import EPOCH, STREAM, Disk

from mainstem.log.cleaning import generation_writer
from mainstem.log.cleaning.batch_filter import horizon_of
from mainstem.log.cleaning.compaction import (
    AbortedTransaction,
    CompactionJob,
    compact,
    read_mark,
    sealed_range_of,
    stored_batches,
)
from mainstem.log.cleaning.compaction_plan import (
    CompactionPlan,
    CompactionSettings,
    SealedRange,
    plan_compaction,
)
from mainstem.log.range_log import RangeLog, SegmentSettings
from mainstem.model.errors import Corrupt, InvalidRequest
from mainstem.model.records.batch import CONTROL_MASK, TRANSACTIONAL_MASK, stamp
from mainstem.model.records.record import ProducerStamp, Record, build_batch, records_of

NOW = 1_700_000_000_000
HOUR = 3_600_000


def put(
    log: RangeLog,
    *pairs: tuple[bytes | None, bytes | None],
    producer: int = -1,
    sequence: int = -1,
    flags: int = 0,
) -> int:
    base = log.written_end
    records = [Record(place, 1_000 + base, key, value) for place, (key, value) in enumerate(pairs)]
    batch = build_batch(records, flags=flags, producer=ProducerStamp(producer, 0, sequence))
    stamp(batch, 0, base, EPOCH)
    log.append([(memoryview(batch), base, base + len(pairs), 1_000 + base)])
    return base


def job(*logs: RangeLog, dirty_from: int = 0, now: int = NOW, **more: object) -> CompactionJob:
    return CompactionJob(
        tuple(log.directory for log in logs),
        dirty_from,
        logs[-1].written_end,
        now,
        HOUR,
        **more,  # type: ignore[arg-type]
    )


def contents(directory: Path) -> list[tuple[int, bytes | None, bytes | None]]:
    return [
        (record.offset, record.key, record.value)
        for _, batch in stored_batches(directory)
        for record in records_of(batch)
    ]


def headers(directory: Path) -> list[tuple[int, int, int]]:
    return [(h.base_offset, h.until_offset, h.record_count) for h, _ in stored_batches(directory)]


def test_older_records_of_a_key_go_and_offsets_stay(disk: Disk) -> None:
    log = disk.open()
    put(log, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    put(log, (b"a", b"3"), (b"c", b"1"))
    log.seal()
    [result] = compact(job(log))
    assert result.target is not None
    assert contents(result.target) == [(1, b"b", b"1"), (3, b"a", b"3"), (4, b"c", b"1")]
    assert headers(result.target) == [(0, 3, 1), (3, 5, 2)]
    assert (result.records_kept, result.records_removed) == (3, 2)
    assert contents(log.directory)[0] == (0, b"a", b"1")  # the source is as it was


def test_one_map_serves_all_ranges(disk: Disk) -> None:
    first = disk.open()
    put(first, (b"a", b"1"))
    put(first, (b"b", b"1"))
    first.seal()
    second = disk.open(index=1, start_offset=2)
    put(second, (b"a", b"2"))
    second.seal()
    results = compact(job(first, second))
    assert results[0].target is not None
    assert contents(results[0].target) == [(1, b"b", b"1")]
    assert results[1].target is None  # nothing had to go
    assert read_mark(second.directory) is not None


def test_the_last_batch_of_a_range_stays_even_if_it_is_empty(disk: Disk) -> None:
    first = disk.open()
    put(first, (b"a", b"1"))
    put(first, (b"a", b"2"))
    first.seal()
    second = disk.open(index=1, start_offset=2)
    put(second, (b"a", b"3"))
    second.seal()
    target = compact(job(first, second))[0].target
    assert target is not None
    assert headers(target) == [(1, 2, 0)]
    fresh = disk.store.open_range(STREAM, "orders", 0, epoch=EPOCH, start_offset=0, generation=1)
    assert fresh.written_end == 2
    piece = fresh.read(0, max_bytes=1_000, until=2, min_one=True)
    assert piece is not None
    assert (piece.until_offset, len(piece)) == (2, 61)
    assert fresh.opening_snapshot() == b"state of producers"


def test_a_batch_with_the_last_sequence_of_a_producer_stays_empty(disk: Disk) -> None:
    log = disk.open()
    put(log, (b"a", b"1"), producer=7, sequence=4)
    put(log, (b"a", b"2"), producer=8, sequence=9)
    put(log, (b"a", b"3"))
    log.seal()
    target = compact(job(log, last_sequences=frozenset({0})))[0].target
    assert target is not None
    kept = [(h.producer_id, h.base_sequence, h.record_count) for h, _ in stored_batches(target)]
    assert kept == [(7, 4, 0), (-1, -1, 1)]


def test_tombstones_stay_for_the_retention_time_after_they_were_first_cleaned(disk: Disk) -> None:
    log = disk.open()
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", None))
    put(log, (b"z", b"end"))
    log.seal()
    [result] = compact(job(log))
    assert result.target is not None
    assert contents(result.target) == [(1, b"b", b"1"), (2, b"a", None), (3, b"z", b"end")]
    [_, (header, batch), _] = stored_batches(result.target)
    assert horizon_of(header) == NOW + HOUR
    [record] = records_of(batch)
    assert record.timestamp == 1_002  # the horizon took the place of the base timestamp
    mark = read_mark(result.target)
    assert mark is not None
    assert mark.horizon_ms == NOW + HOUR
    disk.store.drop_range(log)
    log = disk.store.open_range(STREAM, "orders", 0, epoch=EPOCH, start_offset=0, generation=1)
    [early] = compact(job(log, dirty_from=4, now=NOW + HOUR - 1))
    assert early.target is None
    [late] = compact(job(log, dirty_from=4, now=NOW + HOUR))
    assert late.target is not None
    assert contents(late.target) == [(1, b"b", b"1"), (3, b"z", b"end")]


def test_markers_stay_until_their_horizon_and_aborted_records_go(disk: Disk) -> None:
    log = disk.open()
    put(log, (b"a", b"kept"))
    put(log, (b"a", b"aborted"), producer=5, sequence=0, flags=TRANSACTIONAL_MASK)
    marker = (b"\x00\x00\x00\x00", b"\x00\x00\x00\x00\x00\x00")
    put(log, marker, producer=5, flags=TRANSACTIONAL_MASK | CONTROL_MASK)
    put(log, (b"z", b"end"))
    log.seal()
    aborted = (AbortedTransaction(5, 1, 2),)
    [result] = compact(job(log, aborted=aborted))
    assert result.target is not None
    assert headers(result.target) == [(0, 1, 1), (2, 3, 1), (3, 4, 1)]
    disk.store.drop_range(log)
    log = disk.store.open_range(STREAM, "orders", 0, epoch=EPOCH, start_offset=0, generation=1)
    [result] = compact(job(log, dirty_from=4, now=NOW + HOUR, aborted=aborted))
    assert result.target is not None
    assert headers(result.target) == [(0, 1, 1), (3, 4, 1)]


def test_a_marker_stays_as_long_as_a_record_that_it_decides_about(disk: Disk) -> None:
    log = disk.open()
    put(log, (b"a", b"committed"), producer=5, sequence=0, flags=TRANSACTIONAL_MASK)
    marker = (b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x00")
    put(log, marker, producer=5, flags=TRANSACTIONAL_MASK | CONTROL_MASK)
    put(log, (b"z", b"end"))
    log.seal()
    [result] = compact(job(log))
    assert result.target is not None
    disk.store.drop_range(log)
    log = disk.store.open_range(STREAM, "orders", 0, epoch=EPOCH, start_offset=0, generation=1)

    [again] = compact(job(log, dirty_from=3, now=NOW + HOUR))

    assert again.target is None
    assert headers(log.directory) == [(0, 1, 1), (1, 2, 1), (2, 3, 1)]
    mark = read_mark(log.directory)
    assert mark is not None
    assert mark.horizon_ms is None


def test_records_without_a_key_go(disk: Disk) -> None:
    log = disk.open()
    put(log, (None, b"from a time when the topic was not compacted"), (b"a", b"1"))
    log.seal()
    [result] = compact(job(log))
    assert result.target is not None
    assert contents(result.target) == [(1, b"a", b"1")]


def test_records_at_or_above_the_limit_are_not_touched(disk: Disk) -> None:
    log = disk.open()
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    log.seal()
    limited = CompactionJob((log.directory,), 0, 1, NOW, HOUR)
    [result] = compact(limited)
    assert result.target is None
    mark = read_mark(log.directory)
    assert mark is not None
    assert mark.clean_until == 1


def test_an_open_range_is_refused(disk: Disk) -> None:
    log = disk.open()
    put(log, (b"a", b"1"))
    log.roll()
    with pytest.raises(InvalidRequest):
        compact(job(log))


def test_a_damaged_source_is_reported_and_nothing_is_left_behind(disk: Disk) -> None:
    log = disk.open()
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    log.seal()
    path = log.segments[0].path
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(Corrupt) as error:
        compact(job(log))
    assert str(path) in str(error.value)
    assert sorted(entry.name for entry in log.directory.parent.iterdir()) == ["range-0.g0"]


@pytest.mark.parametrize("call", ["_end_segment", "finish", "publish"])
def test_a_pass_that_dies_anywhere_leaves_the_source_and_no_half_generation(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    log = disk.open(SegmentSettings(segment_bytes=200))
    for place in range(20):
        put(log, (b"k%d" % (place % 3), b"%d" % place))
    log.seal()
    before = contents(log.directory)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(generation_writer.GenerationWriter, call, full)
        with pytest.raises(OSError, match="No space"):
            compact(job(log))
    assert sorted(entry.name for entry in log.directory.parent.iterdir()) == ["range-0.g0"]
    assert contents(log.directory) == before
    [result] = compact(job(log))
    assert result.target is not None
    assert len(contents(result.target)) == 3


def test_a_generation_nobody_heard_of_is_replaced(disk: Disk) -> None:
    log = disk.open()
    put(log, (b"a", b"1"), (b"a", b"2"))
    log.seal()
    first = compact(job(log))
    again = compact(job(log))
    assert first == again
    assert again[0].target is not None
    assert contents(again[0].target) == [(1, b"a", b"2")]


SETTINGS = CompactionSettings(min_cleanable_dirty_ratio=0.5, delete_retention_ms=HOUR)


def sealed(
    start: int,
    *,
    size: int = 100,
    clean: bool = False,
    time: int = NOW - HOUR,
    horizon: int | None = None,
) -> SealedRange:
    until = start + 10
    return SealedRange(start, until, size, time, time, until if clean else start, horizon)


@pytest.mark.parametrize(
    ("ranges", "plan"),
    [
        ([], None),
        ([sealed(0)], CompactionPlan(0, 10)),
        ([sealed(0, clean=True), sealed(10)], CompactionPlan(10, 20)),
        ([sealed(0, clean=True, size=101), sealed(10)], None),
        ([sealed(0, clean=True)], None),
        ([sealed(0, clean=True, horizon=NOW)], CompactionPlan(10, 10)),
        ([sealed(0, clean=True, horizon=NOW + 1)], None),
        ([sealed(0), sealed(10, clean=True), sealed(20)], CompactionPlan(0, 30)),
    ],
)
def test_a_pass_is_due_when_enough_is_dirty(
    ranges: list[SealedRange], plan: CompactionPlan | None
) -> None:
    assert plan_compaction(ranges, SETTINGS, stable_until=1_000, now_ms=NOW) == plan


def test_nothing_above_the_last_stable_offset_is_compacted() -> None:
    ranges = [sealed(0), sealed(10), sealed(20)]
    plan = plan_compaction(ranges, SETTINGS, stable_until=29, now_ms=NOW)
    assert plan == CompactionPlan(0, 20)


def test_young_records_wait_for_their_lag() -> None:
    lag = CompactionSettings(min_compaction_lag_ms=HOUR)
    ranges = [sealed(0, time=NOW - HOUR), sealed(10, time=NOW - HOUR + 1)]
    assert plan_compaction(ranges, lag, stable_until=99, now_ms=NOW) == CompactionPlan(0, 10)


def test_old_dirt_is_compacted_however_little_it_is() -> None:
    lag = CompactionSettings(max_compaction_lag_ms=HOUR)
    ranges = [sealed(0, clean=True, size=10_000), sealed(10, time=NOW - HOUR - 1)]
    assert plan_compaction(ranges, lag, stable_until=99, now_ms=NOW) == CompactionPlan(10, 20)
    ranges = [sealed(0, clean=True, size=10_000), sealed(10, time=NOW - HOUR)]
    assert plan_compaction(ranges, lag, stable_until=99, now_ms=NOW) is None


def test_the_facts_of_a_range_come_from_its_files(disk: Disk) -> None:
    log = disk.open()
    put(log, (b"a", b"1"), (b"a", None))
    log.seal()
    sealed = sealed_range_of(log)
    assert (sealed.start, sealed.until, sealed.clean_until, sealed.horizon_ms) == (0, 2, 0, None)
    assert sealed.first_timestamp == 1_000
    compact(job(log))
    disk.store.drop_range(log)
    log = disk.store.open_range(STREAM, "orders", 0, epoch=EPOCH, start_offset=0, generation=1)
    sealed = sealed_range_of(log)
    assert (sealed.clean_until, sealed.horizon_ms) == (2, NOW + HOUR)
