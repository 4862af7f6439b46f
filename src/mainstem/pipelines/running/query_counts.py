"""What the queries report with every batch, summed up by pipeline.

Spark calls the listener from threads of its own; each event replaces one value as a whole, so that
readers never see half of one.
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
    """A pipeline since its process began; durations and rates are the last batch's."""

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
        """What a pipeline has done so far."""
        return self._counts.get(pipeline, QueryCounts())

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing has happened yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """One batch is done."""
        progress = event.progress
        name = progress.name or ""
        pipeline = name.removesuffix(DEAD_SUFFIX)
        before = self.counts(pipeline)
        # Spark leaves the counts out where a sink builds a plan of its own.
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

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """A look that found nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """The runner sees the end by itself."""


def _finite(rate: float) -> float:
    return rate if math.isfinite(rate) else 0.0
