"""Converts a rate limit to rows per micro-batch and a trigger interval. Pure.

A token bucket of ``burst`` rows that fills at ``events_per_second`` is the same as ``burst`` rows
every ``burst / events_per_second`` seconds, and Spark can enforce that: a limit of rows per
micro-batch and a trigger interval. A batch that takes longer only lowers the rate.
"""

import math

from msgspec import Struct

from mainstem.pipelines.file.model import SinkRate, SourceRate

BURST_SHARE = 0.1  # fraction of the rows of a second
INTERVAL_MS_MIN = 100  # shorter triggers cost more than they smooth


class BatchPace(Struct, frozen=True):
    """``rows_per_batch_max`` rows (None: no limit) every ``interval_ms``."""

    interval_ms: int
    rows_per_batch_max: int | None = None


def batch_pace_of(rate: SourceRate | SinkRate | None, interval_ms: int) -> BatchPace:
    """The limits for a rate; ``interval_ms`` if there is none."""
    if rate is None:
        return BatchPace(interval_ms)
    per_second = rate.events_per_second
    wanted = rate.burst_size if isinstance(rate, SourceRate) else rate.burst_capacity
    rows = wanted or max(1, math.floor(per_second * BURST_SHARE))
    rows = max(rows, math.ceil(per_second * INTERVAL_MS_MIN / 1000))
    if isinstance(rate, SourceRate) and rate.max_in_flight is not None:
        rows = min(rows, rate.max_in_flight)
    # Rounded up, so that the rate is never exceeded.
    return BatchPace(math.ceil(rows * 1000 / per_second), rows)
