"""The identity of a micro-batch: the key of the ledger of a ``foreachBatch`` sink.

Batch ids alone are not enough: a query with a new checkpoint counts from zero again, and a ledger
with numbers only would skip its batches. The query's id is stored in the checkpoint, so it survives
restarts and changes when the checkpoint does.
"""

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


class BatchIdentity(Struct, frozen=True):
    """One micro-batch of one query; the same after a crash, in whatever process it is repeated."""

    query_id: str
    batch_id: int

    def __str__(self) -> str:
        return f"{self.query_id}-{self.batch_id}"


def identity_of(batch: "DataFrame", batch_id: int) -> BatchIdentity:
    """The identity of the batch that a ``foreachBatch`` function got."""
    query_id = batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    assert query_id, "only a batch of a streaming query has an identity"
    return BatchIdentity(query_id, batch_id)


def written_by(
    frame: "DataFrame", write: "Callable[[DataFrame, BatchIdentity], None]"
) -> "DataStreamWriter":
    """A writer, not started, that calls a function with every batch and its identity."""

    def put(batch: "DataFrame", batch_id: int) -> None:
        write(batch, identity_of(batch, batch_id))

    return frame.writeStream.foreachBatch(put)


def current_batch(spark: "SparkSession") -> BatchIdentity | None:
    """The batch that this thread processes; None outside a ``foreachBatch`` function."""
    query_id = spark.sparkContext.getLocalProperty(QUERY_ID)
    batch_id = spark.sparkContext.getLocalProperty(BATCH_ID)
    if not query_id or not batch_id:
        return None
    return BatchIdentity(query_id, int(batch_id))
