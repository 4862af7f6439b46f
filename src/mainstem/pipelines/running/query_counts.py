"""Counts of the queries' progress reports, summed up by pipeline.

Spark calls the listener from its own threads; each event replaces one value as a whole, so readers
never see a partial update.
"""

import math
import time

from msgspec import Struct
from msgspec.structs import replace
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from mainstem.pipelines.running.query_builder import (
    DEAD_SUFFIX,
    OBSERVED,
    OBSERVED_DEAD,
    OBSERVED_ROWS,
)


class QueryCounts(Struct, frozen=True):
    """Counts of a pipeline since its process started; durations and rates are the last batch's."""

    batches: int = 0
    records: int = 0
    dead_letters: int = 0
    batch_ms: int = 0
    records_per_second: float = 0.0
    last_batch_id: int = -1
    last_batch_at: float = 0.0  # seconds since 1970


class ProgressListener(StreamingQueryListener):
    """Sums up by query name, which is the pipeline's id."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[str, QueryCounts] = {}

    def counts(self, pipeline: str) -> QueryCounts:
        """The counts of a pipeline so far."""
        return self._counts.get(pipeline, QueryCounts())

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Ignore the start of a query."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Count a completed batch."""
        progress = event.progress
        name = progress.name or ""
        pipeline = name.removesuffix(DEAD_SUFFIX)
        before = self.counts(pipeline)
        # Spark omits the counts if a sink builds its own plan.
        observed = progress.observedMetrics.get(OBSERVED)
        rows = progress.numInputRows if observed is None else int(observed[OBSERVED_ROWS])
        dead = 0 if observed is None else int(observed[OBSERVED_DEAD])
        if name.endswith(DEAD_SUFFIX):
            self._counts[pipeline] = replace(before, dead_letters=before.dead_letters + dead)
            return
        is_new = progress.batchId != before.last_batch_id
        self._counts[pipeline] = QueryCounts(
            batches=before.batches + is_new,
            records=before.records + rows - dead,
            dead_letters=before.dead_letters + dead,
            batch_ms=progress.batchDuration,
            records_per_second=_finite(progress.processedRowsPerSecond),
            last_batch_id=progress.batchId,
            last_batch_at=time.time(),
        )

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Ignore a trigger without new records."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Ignore the end of a query; the runner detects it."""


def _finite(rate: float) -> float:
    return rate if math.isfinite(rate) else 0.0
