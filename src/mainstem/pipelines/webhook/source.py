"""Stored webhook requests as a stream: offsets are their numbers, batches are ranges of them.

The listener and the spool run in the driver's process of the source. Batches are sent to the tasks
with their partitions, so tasks need no access to the spool; they are therefore limited in bytes.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import Struct
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from mainstem.pipelines.connector.state_file import replace_json
from mainstem.pipelines.spark.settings_source import SettingsSource
from mainstem.pipelines.webhook.listener import ListenerSettings, WebhookListener
from mainstem.pipelines.webhook.spool import Request, RequestSpool

ROWS_PER_BATCH = 10_000
BYTES_PER_BATCH = 16 * 1024 * 1024
SPOOL = "spool"
ADDRESS = "listener.json"
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_ARROW = pa.schema(
    [("value", pa.binary()), ("headers", _HEADERS), ("timestamp", pa.timestamp("us", tz="UTC"))]
)


class WebhookSourceOptions(Struct, frozen=True, kw_only=True):
    """The settings of the source; passed as an option of the data source."""

    listener: ListenerSettings
    state_dir: str
    buffer_bytes_max: int
    rows_per_batch_max: int | None = None

    def spool(self) -> RequestSpool:
        """Reads the stored requests."""
        return RequestSpool(Path(self.state_dir) / SPOOL, bytes_max=self.buffer_bytes_max)


class _Requests(InputPartition):
    def __init__(self, requests: list[Request]) -> None:
        super().__init__(None)
        self.packed = msgspec.msgpack.encode(requests)


def _read(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    assert isinstance(partition, _Requests)
    requests = msgspec.msgpack.decode(partition.packed, type=list[Request])
    headers = [[{"key": k, "value": v} for k, v in each.headers] for each in requests]
    columns = [
        pa.array([each.body for each in requests], pa.binary()),
        pa.array(headers, _HEADERS),
        pa.array([each.at_us for each in requests], pa.timestamp("us", tz="UTC")),
    ]
    yield pa.RecordBatch.from_arrays(columns, schema=_ARROW)


class _WebhookBatchReader(DataSourceReader):
    def __init__(self, options: WebhookSourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        spool = self._options.spool()
        end = spool.end_within(spool.start, rows_max=ROWS_PER_BATCH, bytes_max=BYTES_PER_BATCH)
        found = spool.read(spool.start, end)
        spool.close()
        return [_Requests(found)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition)


class _WebhookStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream of one query, in the driver's process; its copies in tasks only read."""

    def __init__(self, options: WebhookSourceOptions) -> None:
        self._options = options
        self._open: tuple[RequestSpool, WebhookListener] | None = None
        self._target: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_open": None, "_target": None}

    def initialOffset(self) -> dict[str, int]:
        return {"request": self._spool().start}

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._spool().until

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        del limit
        first = start["request"]
        rows_max = self._options.rows_per_batch_max or ROWS_PER_BATCH
        end = self._spool().end_within(first, rows_max=rows_max, bytes_max=BYTES_PER_BATCH)
        return {"request": end if self._target is None else max(first, min(end, self._target))}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [_Requests(self._spool().read(start["request"], end["request"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(partition)

    def commit(self, end: dict[str, int]) -> None:
        """Drops requests whose records are stored in the topic."""
        self._spool().drop(end["request"])

    def stop(self) -> None:
        """Stop accepting requests."""
        if self._open is not None:
            spool, listener = self._open
            listener.close()
            spool.close()
            self._open = None

    def _spool(self) -> RequestSpool:
        if self._open is None:
            spool = self._options.spool()
            listener = WebhookListener(self._options.listener, spool)
            listener.start()
            self._open = (spool, listener)
            address = {"host": self._options.listener.host, "port": listener.port}
            replace_json(Path(self._options.state_dir) / ADDRESS, address)
        return self._open[0]


class WebhookDataSource(SettingsSource):
    """Bodies, forwarded headers and times of requests; as a table, only the stored ones."""

    format_name = "mainstem-webhook"
    columns = "value binary, headers array<struct<key:string,value:binary>>, timestamp timestamp"
    settings = WebhookSourceOptions
    table_reader = _WebhookBatchReader
    stream_reader = _WebhookStreamReader
