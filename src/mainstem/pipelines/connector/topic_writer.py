"""Writes streaming frames to topics, in any output mode.

Spark passes the changed rows of an aggregate (``update``) to no data source that is written in
Python, only to ``foreachBatch`` functions. Written by one, under the identity of the batch, they
are recognised after a crash like those of any other query: exactly once.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from mainstem.pipelines.connector.batches import BatchIdentity, written_by

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

FORMAT: Final = "mainstem"
UPDATE: Final = "update"


def topic_writer(
    frame: "DataFrame", options: Mapping[str, str], output_mode: str
) -> "DataStreamWriter":
    """A writer of wire columns that is not started; ``options`` are those of the topic sink."""
    if output_mode != UPDATE:
        return frame.writeStream.format(FORMAT).options(**options).outputMode(output_mode)

    def put(batch: "DataFrame", identity: BatchIdentity) -> None:
        ledger = {"ledger.query": identity.query_id, "ledger.batch": str(identity.batch_id)}
        batch.write.format(FORMAT).options(**options, **ledger).mode("append").save()

    return written_by(frame, put).outputMode(UPDATE)
