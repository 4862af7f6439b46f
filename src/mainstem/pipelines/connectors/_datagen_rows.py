"""The rows of ``datagen`` and their Spark data source.

Every value is a function of the seed, the column and the row's number (SplitMix64 on whole arrays),
so a batch that is repeated after a crash is identical.
"""

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from msgspec import Struct
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from mainstem.pipelines.connector.progress import SourceProgress, write_progress
from mainstem.pipelines.spark.settings_source import SettingsSource

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.uint64]

ROWS_PER_BATCH = 100_000  # of a source without a rate limit
ROWS_PER_ARROW_BATCH = 10_000
PROGRESS_EVERY_S = 0.5

COLUMNS: dict[str, list[tuple[str, str]]] = {
    "orders": [
        ("order_id", "bigint"), ("customer", "string"), ("email", "string"), ("product", "string"),
        ("quantity", "int"), ("amount", "double"), ("country", "string"), ("at", "timestamp"),
    ],
    "clicks": [
        ("session", "string"), ("page", "string"), ("referrer", "string"), ("ms_on_page", "int"),
        ("at", "timestamp"),
    ],
    "sensors": [
        ("sensor", "string"), ("temperature", "double"), ("humidity", "double"),
        ("battery", "int"), ("at", "timestamp"),
    ],
    "numbers": [("number", "bigint"), ("text", "string"), ("at", "timestamp")],
}  # fmt: skip
_CUSTOMERS = [f"customer-{n:04}" for n in range(1_000)]
_EMAILS = [f"{name}@example.com" for name in _CUSTOMERS]
_PRODUCTS = ["anchor", "buoy", "canoe", "dinghy", "fender", "oar", "paddle", "rope", "sail", "tarp"]
_COUNTRIES = ["CA", "CH", "DE", "FR", "GB", "JP", "NL", "US"]
_PAGES = ["/", "/cart", "/checkout", "/help", "/product", "/search"]
_REFERRERS = ["direct", "mail", "news", "search", "social"]


def start_us(text: str) -> int:
    """Microseconds since 1970 of an ISO 8601 timestamp; UTC when it has no zone."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1_000_000)


def rows(kind: str, first: int, until: int, *, seed: int, start: int, step_us: int) -> pa.Table:
    """Rows ``first`` (included) to ``until`` (excluded), in the columns of their kind."""
    numbers = np.arange(first, until, dtype=np.uint64)
    draw = _Draw(numbers, seed)
    at = pa.array(numbers.astype(np.int64) * step_us + start, pa.timestamp("us", tz="UTC"))
    made: dict[str, Any]
    if kind == "orders":
        made = {
            "order_id": numbers.astype(np.int64),
            "customer": draw.one_of(1, _CUSTOMERS),
            "email": draw.one_of(1, _EMAILS),  # the same random number: a customer has one address
            "product": draw.one_of(2, _PRODUCTS),
            "quantity": draw.whole(3, 1, 10).astype(np.int32),
            "amount": draw.whole(4, 100, 50_000) / 100,
            "country": draw.one_of(5, _COUNTRIES),
        }
    elif kind == "clicks":
        made = {
            "session": draw.one_of(1, [f"session-{n:05}" for n in range(5_000)]),
            "page": draw.one_of(2, _PAGES),
            "referrer": draw.one_of(3, _REFERRERS),
            "ms_on_page": draw.whole(4, 50, 120_000).astype(np.int32),
        }
    elif kind == "sensors":
        made = {
            "sensor": draw.one_of(1, [f"sensor-{n:03}" for n in range(100)]),
            "temperature": draw.whole(2, -200, 400) / 10,
            "humidity": draw.whole(3, 0, 1_000) / 10,
            "battery": draw.whole(4, 0, 101).astype(np.int32),
        }
    else:
        made = {
            "number": numbers.astype(np.int64),
            "text": pa.array(numbers.astype(np.int64)).cast(pa.string()),
        }
    return pa.table({**made, "at": at})


class _Draw:
    """Random numbers of each row and column."""

    def __init__(self, numbers: "Numbers", seed: int) -> None:
        self._numbers = numbers
        self._seed = np.uint64(seed)

    def whole(self, column: int, low: int, high: int) -> "NDArray[np.int64]":
        """Integers from ``low`` (included) to ``high`` (excluded)."""
        drawn = (self._bits(column) % np.uint64(high - low)).astype(np.int64)
        return drawn + low

    def one_of(self, column: int, words: Sequence[str]) -> pa.Array:
        """One random word per row."""
        return pa.array(words).take(pa.array(self.whole(column, 0, len(words))))

    def _bits(self, column: int) -> "Numbers":
        with np.errstate(over="ignore"):
            mixed = self._numbers * np.uint64(0x9E3779B97F4A7C15)
            mixed += self._seed * np.uint64(0xD1B54A32D192ED03) + np.uint64(column << 32)
            mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            return mixed ^ (mixed >> np.uint64(31))


class _Rows(InputPartition):
    """A range of rows for one task."""

    def __init__(self, first: int, until: int) -> None:
        super().__init__(first)
        self.first = first
        self.until = until


class DatagenOptions(Struct, frozen=True, kw_only=True):
    """The settings of the readers."""

    kind: str
    seed: int
    start: str
    tasks: int
    progress_dir: str
    count: int | None
    rows_per_second: int | None
    rows_per_batch_max: int | None

    @property
    def rows_per_batch(self) -> int:
        """The limit of rows per batch."""
        return self.rows_per_batch_max or ROWS_PER_BATCH

    def partitions(self, first: int, until: int) -> list[_Rows]:
        """The rows divided among the tasks."""
        size = max(1, -(-(until - first) // self.tasks))
        return [_Rows(low, min(low + size, until)) for low in range(first, until, size)]

    def read(self, part: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task, in Arrow batches."""
        assert isinstance(part, _Rows)
        start = start_us(self.start)
        step_us = 1_000_000 // self.rows_per_second if self.rows_per_second else 1_000
        for low in range(part.first, part.until, ROWS_PER_ARROW_BATCH):
            high = min(low + ROWS_PER_ARROW_BATCH, part.until)
            table = rows(self.kind, low, high, seed=self.seed, start=start, step_us=step_us)
            yield from table.to_batches()


class _DatagenBatchReader(DataSourceReader):
    def __init__(self, options: DatagenOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        until = self._options.count
        return self._options.partitions(0, self._options.rows_per_batch if until is None else until)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._options.read(partition)


class _DatagenStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream of rows; offsets are row numbers, and the rate counts from the first call."""

    def __init__(self, options: DatagenOptions) -> None:
        self._options = options
        self._paced_from: tuple[float, int] | None = None
        self._is_once = False
        self._target: int | None = None
        self._logged_at = float("-inf")

    def initialOffset(self) -> dict[str, int]:
        return {"row": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.rows_per_batch)

    def prepareForTriggerAvailableNow(self) -> None:
        """All rows of a finite source; of an endless one, as many as a batch contains."""
        self._is_once = True
        self._target = self._options.count

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        row = start["row"]
        until = row + self._allowed(limit)
        if self._is_once and self._target is None:
            self._target = until
        if self._target is not None:
            until = min(until, self._target)
        elif self._options.rows_per_second is not None:
            until = min(until, max(row, self._due(row)))
        if self._options.count is not None:
            until = min(until, max(row, self._options.count))
        self._log_progress(row)
        return {"row": until}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return self._options.partitions(start["row"], end["row"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._options.read(partition)

    def _allowed(self, limit: ReadLimit) -> int:
        if isinstance(limit, ReadMaxRows):
            return min(limit.max_rows, self._options.rows_per_batch)
        assert isinstance(limit, ReadAllAvailable), limit
        return self._options.rows_per_batch

    def _due(self, row: int) -> int:
        now = time.monotonic()
        if self._paced_from is None:
            self._paced_from = (now, row)
        since, first = self._paced_from
        assert self._options.rows_per_second is not None
        return first + int((now - since) * self._options.rows_per_second)

    def _log_progress(self, row: int) -> None:
        total = self._options.count
        now = time.monotonic()
        if total is None or (now - self._logged_at < PROGRESS_EVERY_S and row < total):
            return
        self._logged_at = now
        folder = Path(self._options.progress_dir)
        write_progress(folder, SourceProgress(what="generated rows", done=row, total=total))


class DatagenDataSource(SettingsSource):
    """The data source of generated rows; as a table all rows, or one batch of an endless source."""

    format_name = "mainstem-datagen"
    settings = DatagenOptions
    table_reader = _DatagenBatchReader
    stream_reader = _DatagenStreamReader

    def schema(self) -> str:
        """The columns of the configured kind."""
        return ", ".join(f"{name} {type_}" for name, type_ in COLUMNS[self._settings().kind])
