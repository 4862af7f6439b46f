"""Pure: whether a stream is to be compacted now, and up to where.

    cleaned before            dirty: compacted now if there is enough of it     not to be touched
    ────────────────── clean_until ──────────────────────────────────── until ──────────────────▶

``until`` is bounded by the last stable offset, by the open range and by ``min.compaction.lag.ms``.
A pass is due when the dirty part is large enough, has waited for ``max.compaction.lag.ms``, or when
tombstones whose delete horizon has passed may go.
"""

from collections.abc import Sequence
from dataclasses import dataclass

DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """Kafka's topic settings of the same names."""

    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    delete_retention_ms: int = DAY_MS


@dataclass(frozen=True, slots=True)
class SealedRange:
    """Properties of a sealed range that are known without reading it."""

    start: int
    until: int
    size_bytes: int
    first_timestamp: int
    max_timestamp: int
    clean_until: int  # records below have been compared with all that came before them
    horizon_ms: int | None = None  # when the next tombstones or markers in it may go


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """Compact the ranges from the start up to ``until``; those below ``dirty_from`` were clean."""

    dirty_from: int
    until: int


def plan_compaction(
    ranges: Sequence[SealedRange], settings: CompactionSettings, *, stable_until: int, now_ms: int
) -> CompactionPlan | None:
    """What to compact now; None when nothing is due."""
    candidates = _allowed(ranges, settings, stable_until, now_ms)
    if not candidates:
        return None
    dirty_from = _clean_until(candidates)
    until = candidates[-1].until
    dirty = [part for part in candidates if part.until > dirty_from]
    total_bytes = sum(part.size_bytes for part in candidates)
    dirty_bytes = sum(part.size_bytes for part in dirty)
    ratio = dirty_bytes / total_bytes if total_bytes else 0.0
    waited_ms = now_ms - min((part.first_timestamp for part in dirty), default=now_ms)
    if (
        (dirty and ratio >= settings.min_cleanable_dirty_ratio)
        or (dirty and waited_ms > settings.max_compaction_lag_ms)
        or any(part.horizon_ms is not None and part.horizon_ms <= now_ms for part in candidates)
    ):
        return CompactionPlan(dirty_from, until)
    return None


def _allowed(
    ranges: Sequence[SealedRange], settings: CompactionSettings, stable_until: int, now_ms: int
) -> list[SealedRange]:
    allowed = []
    for part in ranges:
        too_young = part.max_timestamp > now_ms - settings.min_compaction_lag_ms
        if part.until > stable_until or (settings.min_compaction_lag_ms > 0 and too_young):
            break
        allowed.append(part)
    return allowed


def _clean_until(ranges: Sequence[SealedRange]) -> int:
    until = ranges[0].start
    for part in ranges:
        until = max(part.start, min(part.clean_until, part.until))
        if part.clean_until < part.until:
            break
    return until
