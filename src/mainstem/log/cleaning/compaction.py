"""Compaction: only the last record of each key stays. Runs in a worker process, on files alone.

    range-4.g0   range-5.g1   range-6.g0          sealed, in order; the dirty ones fill the key map
        │            │            │
    range-4.g1   range-5.g2   range-6.g1          written beside, then renamed into place

Sources are never changed. A new generation is complete — synced, sealed, indexed — before it gets
its name, and counts only when the catalogue lists it; a crash leaves a directory that
nothing refers to and the store removes. Offsets stay: readers find gaps. The last batch of a range
always stays, emptied if needed, so that the range still ends where it ended; so does a batch that
holds the last sequence of a producer.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from struct import Struct

from mainstem.log.cleaning.batch_filter import (
    RawRecord,
    clean_batch,
    horizon_of,
    raw_records,
)
from mainstem.log.cleaning.compaction_plan import SealedRange
from mainstem.log.cleaning.generation_writer import GenerationWriter
from mainstem.log.cleaning.key_map import KeyMap
from mainstem.log.disk.checked_file import read_checked, write_checked
from mainstem.log.disk.file_access import FileAccess, read_fully
from mainstem.log.identity import MARK_KIND, read_range_header, read_seal
from mainstem.log.naming import COMPACTION_MARK, segment_bases, segment_path
from mainstem.log.range_log import RangeLog
from mainstem.log.segments import scan
from mainstem.log.segments.index import read_index
from mainstem.log.segments.reader import headers_from
from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest
from mainstem.model.limits import DECOMPRESSED_BYTES_MAX, GIB, MIB
from mainstem.model.records.batch import NO_TIMESTAMP, BatchHeader
from mainstem.model.records.record import plain_body

_MARK = Struct(">qq")
_NO_HORIZON = -1


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """Records of this producer between the two offsets never became visible."""

    producer_id: int
    first_offset: int
    last_offset: int  # of the abort marker


@dataclass(frozen=True, slots=True)
class CompactionJob:
    """One pass over the sealed ranges of a stream; picklable."""

    sources: tuple[Path, ...]  # range directories in order
    dirty_from: int
    until: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int = 1 * GIB
    key_map_bytes: int = 128 * MIB
    aborted: tuple[AbortedTransaction, ...] = ()
    last_sequences: frozenset[int] = frozenset()  # last offsets of the producers that are known


@dataclass(frozen=True, slots=True)
class CompactedRange:
    """What a pass made of one range; ``target`` is None where nothing had to go."""

    source: Path
    target: Path | None
    size_bytes: int
    max_timestamp: int
    offset_of_max_timestamp: int
    records_kept: int
    records_removed: int


@dataclass(frozen=True, slots=True)
class CompactionMark:
    """How far a range has been compacted, and when its next tombstones may go."""

    clean_until: int
    horizon_ms: int | None


def compact(job: CompactionJob) -> list[CompactedRange]:
    """Run one pass; every range of the job is rewritten or marked as clean.

    Raises:
        Corrupt: a source is damaged; nothing of that range was changed.
    """
    keys = build_key_map(job)
    undecided: set[int] = set()
    return [compact_range(source, job, keys, undecided) for source in job.sources]


def build_key_map(job: CompactionJob) -> KeyMap:
    """The latest offset of every key in the dirty part, as far as memory allows."""
    keys = KeyMap(job.key_map_bytes)
    keys.covered_until = job.dirty_from
    aborted = _AbortedBatches(job.aborted)
    for source in job.sources:
        for header, data in stored_batches(source, job.dirty_from):
            if header.base_offset >= job.until or keys.full:
                return keys
            if not header.is_control and not aborted.covers(header):
                body = plain_body(data, header, limit_bytes=DECOMPRESSED_BYTES_MAX)
                for record in raw_records(body, header):
                    if record.key is not None:
                        keys.put(record.key, record.offset)
            keys.covered_until = header.until_offset
    return keys


def compact_range(
    source: Path, job: CompactionJob, keys: KeyMap, undecided: set[int]
) -> CompactedRange:
    """Write the next generation of one range beside it, unless nothing would change.

    ``undecided`` carries from range to range whose transactional records stay without their marker
    having been met.
    """
    seal = read_seal(source)
    if seal is None:
        raise InvalidRequest(
            ErrorCode.INVALID_REQUEST, "only sealed ranges are compacted", subject=str(source)
        )
    identity = read_range_header(source)
    target = source.with_name(f"range-{identity.index}.g{identity.generation + 1}")
    writer = GenerationWriter(target, identity, job.segment_bytes)
    try:
        changed, earliest = _rewrite(source, job, keys, writer, undecided)
        mark = CompactionMark(min(keys.covered_until, seal.until_offset), earliest)
        if changed:
            writer.finish(source, seal.until_offset)
            write_mark(writer.unfinished, mark)
            writer.publish()
        else:
            write_mark(source, mark)
    finally:
        writer.discard()
    return CompactedRange(
        source,
        target if changed else None,
        writer.size_bytes,
        writer.max_timestamp,
        writer.offset_of_max_timestamp,
        writer.records_kept,
        writer.records_removed,
    )


def _rewrite(
    source: Path,
    job: CompactionJob,
    keys: KeyMap,
    writer: GenerationWriter,
    undecided: set[int],
) -> tuple[bool, int | None]:
    """Copy what stays; whether anything changed, and the earliest horizon left."""
    aborted = _AbortedBatches(job.aborted)
    horizon_ms = job.now_ms + job.delete_retention_ms
    changed = False
    earliest: int | None = None
    pending: tuple[BatchHeader, memoryview] | None = None
    end: Iterator[tuple[BatchHeader | None, memoryview]] = iter([(None, memoryview(b""))])
    for header, data in chain(stored_batches(source), end):
        if pending is not None:
            last, raw = pending
            result: tuple[memoryview, int, int | None] = raw, last.record_count, None
            decides = last.is_control and last.producer_id in undecided
            if last.base_offset < keys.covered_until:
                decision = _KeepDecision(
                    last, keys, job, hides=aborted.covers(last), decides=decides
                )
                cleaned = clean_batch(raw, last, decision.keeps, horizon_ms)
                # A marker that stays for its records has no delete horizon.
                horizon = None if decides else cleaned.horizon_ms
                result = memoryview(cleaned.data), cleaned.record_count, horizon
            content, count, horizon = result
            if last.is_control:
                undecided.discard(last.producer_id)
            elif last.is_transactional and count:
                undecided.add(last.producer_id)
            changed |= content != raw
            writer.records_removed += last.record_count - count
            ends_range = header is None
            if count or ends_range or last.until_offset - 1 in job.last_sequences:
                writer.append(last, content, count)
            else:
                changed = True
            if horizon is not None:
                earliest = horizon if earliest is None else min(earliest, horizon)
        pending = (header, data) if header is not None else None
    return changed, earliest


class _KeepDecision:
    """Which records of one batch stay."""

    __slots__ = ("_decides", "_expired", "_hides", "_is_control", "_keys")

    def __init__(
        self,
        header: BatchHeader,
        keys: KeyMap,
        job: CompactionJob,
        *,
        hides: bool,
        decides: bool,
    ) -> None:
        horizon = horizon_of(header)
        self._expired = horizon is not None and horizon <= job.now_ms
        self._is_control = header.is_control
        self._hides = hides
        self._decides = decides
        self._keys = keys

    def keeps(self, record: RawRecord) -> bool:
        if self._is_control:
            # A replay of the stream must not take a decided transaction for an open one.
            return self._decides or not self._expired
        if self._hides or record.key is None:
            return False  # aborted, or without the key that a compacted topic requires
        if record.is_tombstone and self._expired:
            return False
        return self._keys.is_latest(record.key, record.offset)


class _AbortedBatches:
    """Which data batches belong to aborted transactions."""

    def __init__(self, transactions: tuple[AbortedTransaction, ...]) -> None:
        self._by_producer: dict[int, list[AbortedTransaction]] = {}
        for transaction in transactions:
            self._by_producer.setdefault(transaction.producer_id, []).append(transaction)

    def covers(self, header: BatchHeader) -> bool:
        if not header.is_transactional or header.is_control:
            return False
        return any(
            transaction.first_offset <= header.base_offset <= transaction.last_offset
            for transaction in self._by_producer.get(header.producer_id, ())
        )


def stored_batches(
    directory: Path, start: int | None = None
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Headers and bytes of all batches of a sealed range, checked; from the one with ``start``."""
    identity = read_range_header(directory)
    access = FileAccess()
    for base in segment_bases(directory):
        path = segment_path(directory, base)
        summary, index = read_index(path)
        if start is not None and summary.until_offset <= start:
            continue
        file = access.open_for_read(path)
        rules = scan.Rules(identity.epoch, index if identity.generation > 0 else None)
        try:
            for header, position in scan.check_file(file.fd, 0, summary.log_bytes, base, rules):
                if start is None or header.until_offset > start:
                    yield header, memoryview(read_fully(file.fd, header.size, position))
        except scan.BadBatch as bad:
            raise Corrupt(f"{bad.cause}, at byte {bad.position}", subject=str(path)) from None


def sealed_range_of(log: RangeLog) -> SealedRange:
    """What planning needs of a sealed range."""
    mark = read_mark(log.directory) if log.segments else None
    first = next(headers_from(log.segments[0], log.first_offset), None) if log.segments else None
    return SealedRange(
        start=log.start_offset,
        until=log.written_end,
        size_bytes=log.size_bytes,
        first_timestamp=first[0].base_timestamp if first is not None else NO_TIMESTAMP,
        max_timestamp=log.max_timestamp,
        clean_until=mark.clean_until if mark is not None else log.start_offset,
        horizon_ms=mark.horizon_ms if mark is not None else None,
    )


def write_mark(directory: Path, mark: CompactionMark) -> None:
    """Record how far a range is clean."""
    horizon = _NO_HORIZON if mark.horizon_ms is None else mark.horizon_ms
    payload = _MARK.pack(mark.clean_until, horizon)
    write_checked(directory / COMPACTION_MARK, MARK_KIND, payload, sync=True)


def read_mark(directory: Path) -> CompactionMark | None:
    """How far a range is clean; None when it was never compacted. ``Corrupt`` when damaged."""
    try:
        payload = read_checked(directory / COMPACTION_MARK, MARK_KIND)
    except FileNotFoundError:
        return None
    clean_until, horizon = _MARK.unpack(payload)
    return CompactionMark(clean_until, None if horizon == _NO_HORIZON else horizon)
