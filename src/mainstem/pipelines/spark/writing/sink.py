"""Frames into topics: ``format("mainstem")`` for writing tables and streams.

Exactly once: every task attempt writes in a separate transaction and leaves it *prepared*, that is
delivered and undecided. When all tasks are done the driver writes the batch and the names of its
transactions into the ledger, then commits them. If a driver crashes before it writes the ledger,
the batch is aborted; if it crashes after that, the next start completes the batch.

    task ─▶ begin ─ write ─ prepare ─▶ handle ─┐
    task ─▶ begin ─ write ─ prepare ─▶ handle ─┴▶ ledger ─▶ commit each

The transactions of a batch become visible one after the other, not all at once. Transactional ids
are reused batch after batch, so a query has few of them; those of other runs of the same query are
ended before a run commits for the first time.

Spark copies the writers below into several processes, each of which does one thing: the two halves
of the work, ``task_writer`` and ``batch_end``, are loaded only where they are used.
"""

import secrets
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from mainstem.pipelines.spark.writing.commit_message import WriteOwner
from mainstem.pipelines.spark.writing.options import parse_write_options
from mainstem.pipelines.spark.writing.record_columns import find_record_columns

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_ID: Final = "sql.streaming.queryId"
RUN_ID: Final = "spark.jobGroup.id"


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query."""

    def __init__(self, given: dict[str, str], schema: StructType) -> None:
        self._given = given
        self._options = parse_write_options(given)
        self._columns = find_record_columns(
            schema.fieldNames(), has_topic=self._options.topic is not None
        )

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Writes the rows of one task."""
        from mainstem.pipelines.spark.writing.task_writer import write_rows

        owner = WriteOwner(
            _property(QUERY_ID) or "unknown", self._options.sink, _property(RUN_ID) or "unknown"
        )
        return write_rows(self._given, self._options, self._columns, owner, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commits the batch after all tasks are done."""
        self._end(messages, batchId, commit=True)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Aborts the batch after a failure of a task or of the commit, unless the ledger has it."""
        self._end(messages, batchId, commit=False)

    def _end(
        self, messages: Sequence[WriterCommitMessage | None], number: int, *, commit: bool
    ) -> None:
        from mainstem.pipelines.spark.writing.batch_end import end_batch

        end_batch(self._options.servers, self._given, messages, number, commit=commit)


class TopicTableWriter(DataSourceArrowWriter):
    """Writes one frame. With ``ledger.query`` and ``ledger.batch`` it is written only once."""

    def __init__(self, given: dict[str, str], schema: StructType) -> None:
        self._given = given
        self._options = parse_write_options(given)
        self._columns = find_record_columns(
            schema.fieldNames(), has_topic=self._options.topic is not None
        )
        query = self._options.ledger_query
        # Chosen once, in the driver; tasks get a copy.
        self._owner = WriteOwner(
            query or "table", self._options.sink, secrets.token_hex(8), two_phase=query is not None
        )

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        """Writes the rows of one task."""
        from mainstem.pipelines.spark.writing.task_writer import write_rows

        owner = self._owner
        if owner.two_phase:
            # Within a query its transactional ids are reused batch after batch.
            owner = owner._replace(run=_property(RUN_ID) or owner.run)
        return write_rows(self._given, self._options, self._columns, owner, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commits the frame after all tasks are done."""
        self._end(messages, commit=True)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Aborts the frame after a task has failed."""
        self._end(messages, commit=False)

    def _end(self, messages: Sequence[WriterCommitMessage | None], *, commit: bool) -> None:
        from mainstem.pipelines.spark.writing.batch_end import end_batch, end_frame

        options = self._options
        if options.ledger_batch is None:
            end_frame(options.servers, self._given, messages, commit=commit)
            return
        end_batch(options.servers, self._given, messages, options.ledger_batch, commit=commit)


def _property(name: str) -> str | None:
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(name)
