"""Sinks that say where they are within a batch: for processes that are killed.

Only the process under test loads this (``frail_job``): it puts points around what the sinks of the
house do in Spark's driver, and changes nothing else.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter
from tests.chaos_pipelines.points import reach

from mainstem.pipelines.connector.batches import identity_of
from mainstem.pipelines.connectors import iceberg
from mainstem.pipelines.database_tables import rows
from mainstem.pipelines.database_tables import sink as _table_sink
from mainstem.pipelines.object_store import bucket, stores
from mainstem.pipelines.object_store import sink as _object_sink
from mainstem.pipelines.webhook import sender

SENT_BEFORE_SENDING = 3
_batch = threading.local()


def install() -> None:
    """Put the points in place."""
    _frail_batches()
    ledger = _object_sink.Manifests
    _around(ledger, "decide", before="staged", after="decided")
    _around(ledger, "tidy", before="moved")
    _around(bucket.Bucket, "move", after="moving")
    _around(stores.FolderStore, "move", after="moving")
    _around(_table_sink, "_note", before="applied", after="noted")
    _around(rows, "arrow_reader", after="reading")
    _around(iceberg, "last_batch", after="looked")
    _frail_requests()


def _frail_batches() -> None:
    """Before a sink is given a batch, and when it has written it but Spark does not know yet."""
    plain = DataStreamWriter.foreachBatch

    def foreach(self: DataStreamWriter, put: Callable[[DataFrame, int], None]) -> Any:
        @functools.wraps(put)
        def frail(batch: DataFrame, batch_id: int) -> None:
            _batch.query = identity_of(batch, batch_id).query_id
            _here("given")
            put(batch, batch_id)
            _here("written")

        return plain(self, frail)

    DataStreamWriter.foreachBatch = foreach  # type: ignore[method-assign, assignment]


def _frail_requests() -> None:
    """When some requests of a batch have arrived."""
    plain = sender._SequentialSender._deliver

    async def deliver(self: Any, record: sender.Outgoing) -> str | None:
        refused = await plain(self, record)
        if record.idempotency_key.endswith(f"-{SENT_BEFORE_SENDING}"):
            _here("sending")
        return refused

    sender._SequentialSender._deliver = deliver  # type: ignore[method-assign]


def _around(owner: Any, name: str, *, before: str = "", after: str = "") -> None:
    plain = getattr(owner, name)

    @functools.wraps(plain)
    def frail(*arguments: Any, **named: Any) -> Any:
        if before:
            _here(before)
        result = plain(*arguments, **named)
        if after:
            _here(after)
        return result

    setattr(owner, name, frail)


def _here(point: str) -> None:
    query = getattr(_batch, "query", None)
    if query is not None:
        reach(query, point)
