"""Joining neighbouring sealed ranges into one, so that a stream does not grow a range per restart.

    range-4.g0   range-5.g1   range-6.g0    sealed neighbours, in order
          └───────────┼───────────┘
                 range-4.g2                 written beside, then renamed into place

Runs in a worker process, on files alone; like a compacted range, the new one counts only when the
catalogue lists it. Its batches carry the first, lowest epoch of those joined: within a range all
batches have one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mainstem.log.cleaning.compaction import CompactionMark, read_mark, stored_batches, write_mark
from mainstem.log.cleaning.generation_writer import GenerationWriter
from mainstem.log.identity import read_range_header, read_seal
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.records.batch import STAMP_EPOCH

_EPOCH_AT = 12


@dataclass(frozen=True, slots=True)
class MergeJob:
    """Join the ranges in ``sources`` as ``generation`` of the first; picklable."""

    sources: tuple[Path, ...]
    generation: int
    segment_bytes: int


@dataclass(frozen=True, slots=True)
class MergedRange:
    """The joined range."""

    target: Path
    size_bytes: int


def merge(job: MergeJob) -> MergedRange:
    """Write the joined range.

    Raises:
        Corrupt: a source is damaged; nothing was changed.
        InvalidRequest: a source is not sealed.
    """
    seals = [read_seal(source) for source in job.sources]
    last = seals[-1]
    if last is None or None in seals:
        raise InvalidRequest(
            ErrorCode.INVALID_REQUEST, "only sealed ranges are joined", subject=str(job.sources[0])
        )
    first = read_range_header(job.sources[0])
    target = job.sources[0].with_name(f"range-{first.index}.g{job.generation}")
    before = replace(first, generation=job.generation - 1)
    writer = GenerationWriter(target, before, job.segment_bytes)
    try:
        for source in job.sources:
            for header, data in stored_batches(source):
                content = bytearray(data)
                STAMP_EPOCH.pack_into(content, _EPOCH_AT, first.epoch)
                writer.append(header, bytes(content), header.record_count)
        writer.finish(job.sources[0], last.until_offset)
        mark = _joined_mark(job.sources)
        if mark is not None:
            write_mark(writer.unfinished, mark)
        writer.publish()
    finally:
        writer.discard()
    return MergedRange(target, writer.size_bytes)


def smallest_run(sizes: Sequence[int], count: int) -> int:
    """The index of the first of ``count`` neighbours that are smallest together."""
    totals = [sum(sizes[at : at + count]) for at in range(len(sizes) - count + 1)]
    return totals.index(min(totals))


def _joined_mark(sources: Sequence[Path]) -> CompactionMark | None:
    """How far the joined range is clean: as far as the ranges are without a gap."""
    joined: CompactionMark | None = None
    for source in sources:
        mark, seal = read_mark(source), read_seal(source)
        if mark is None or seal is None:
            return joined
        horizons = [
            each.horizon_ms for each in (joined, mark) if each and each.horizon_ms is not None
        ]
        joined = CompactionMark(mark.clean_until, min(horizons, default=None))
        if mark.clean_until < seal.until_offset:
            return joined
    return joined
