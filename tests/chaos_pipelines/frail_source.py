"""``format("mainstem")`` whose streaming sink says where it is: for processes that are killed.

Spark's workers load this module when they unpack the writer; that is also where the driver's half
of a commit runs, so the ledger is replaced here.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from tests.chaos_pipelines.points import reach

from mainstem.pipelines.spark.data_source import MainstemSource
from mainstem.pipelines.spark.writing import completion
from mainstem.pipelines.spark.writing.commit_message import TaskCommit
from mainstem.pipelines.spark.writing.ledger import LedgerEntry, LedgerWriter
from mainstem.pipelines.spark.writing.sink import TopicStreamWriter


class FrailLedgerWriter(LedgerWriter):
    """The ledger: a batch is recorded between two points."""

    async def record(self, entry: LedgerEntry) -> None:
        query = self.transactional_id.split("/")[1]
        reach(query, "unrecorded")
        await super().record(entry)
        reach(query, "recorded")


completion.LedgerWriter = FrailLedgerWriter  # type: ignore[attr-defined]


class FrailStreamWriter(TopicStreamWriter):
    """The sink: a task's transaction is prepared, a batch is committed."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        written = super().write(iterator)
        assert isinstance(written, TaskCommit)
        if written.handle is not None:
            reach(written.owner.query, "prepared")
        return written

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        super().commit(messages, batchId)
        for each in messages:
            if isinstance(each, TaskCommit):
                reach(each.owner.query, "committed")


class FrailSource(MainstemSource):
    """The data source with that sink."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        super().streamWriter(schema, overwrite)
        return FrailStreamWriter(self._options, schema)
