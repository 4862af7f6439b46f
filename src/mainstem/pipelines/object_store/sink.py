"""Writes micro-batches to files, each exactly once, in folders and in buckets.

    task ─▶ _mainstem/staging/<query>/<batch>/<random>.parquet ─┐
    task ─▶ _mainstem/staging/<query>/<batch>/<random>.parquet ─┴▶ manifest ─▶ moved to their names

The manifest of a batch is created once: a later attempt finds it and moves the files that it lists.
A batch that is repeated after a crash therefore never appears twice, and a listing of the folder
shows no file of a failed attempt. The files of a batch appear one after the other.

Files of failed attempts are deleted when a later batch of the query is complete; files of queries
that were not restarted are deleted after ``ORPHAN_AGE_S``. Manifests of a query that are behind by
more than ``MANIFESTS_KEPT`` are deleted too; a driver that is that far behind is refused.
"""

import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import IO, Final

import msgspec
import pyarrow as pa
from msgspec import Struct
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from mainstem.model.errors import ErrorCode, Fenced
from mainstem.model.versioned_json import FIRST, decoded
from mainstem.pipelines.connector.batches import BatchIdentity, written_by
from mainstem.pipelines.connector.shapes import ConnectorContext
from mainstem.pipelines.database_tables.rows import columns_of, refuse
from mainstem.pipelines.object_store.formats import (
    LINES,
    Compression,
    Encoder,
    Format,
    encoder,
    ending,
)
from mainstem.pipelines.object_store.stores import FileStore

OWN: Final = "_mainstem"  # readers of folders ignore names that start with an underscore
STAGING: Final = f"{OWN}/staging"
MANIFESTS: Final = f"{OWN}/batches"
MANIFESTS_KEPT: Final = 100
ORPHAN_AGE_S: Final = 7 * 24 * 3600.0
FILE_BYTES: Final = 128 * 1024 * 1024


class Manifest(Struct, frozen=True):
    """The files of a batch: their staging paths and their final names."""

    files: list[tuple[str, str]]
    rows: int
    version: int = FIRST


class FileLayout(Struct, frozen=True, kw_only=True):
    """How a sink writes. ``file_bytes`` is the approximate size of a file."""

    store: FileStore
    format: Format
    schema: str | None
    compression: Compression
    file_bytes: int = FILE_BYTES


def writer_of(frame: DataFrame, layout: FileLayout, context: ConnectorContext) -> DataStreamWriter:
    """A writer that writes every batch to files."""
    return written_by(frame, lambda batch, identity: write_batch(batch, identity, layout, context))


def write_batch(
    batch: DataFrame, identity: BatchIdentity, layout: FileLayout, context: ConnectorContext
) -> None:
    """Write one batch, or complete it if its manifest exists."""
    ledger = Manifests(layout.store, identity)
    manifest = ledger.read()
    if manifest is None:
        rows = arranged(batch, layout, context)
        staged = rows.mapInArrow(_Task(layout, identity), "path string, rows bigint").collect()
        names = sorted((row.path, row.rows) for row in staged)
        files = [(path, ledger.name(n, path)) for n, (path, _) in enumerate(names)]
        manifest = ledger.decide(Manifest(files, sum(rows for _, rows in names)))
    for source, target in manifest.files:
        layout.store.move(source, target)
    ledger.tidy()


def arranged(batch: DataFrame, layout: FileLayout, context: ConnectorContext) -> DataFrame:
    """The columns of the files; values that cannot be written go to the dead letters."""
    from mainstem.pipelines.connector.wire import as_wire

    if layout.schema is not None:
        rows = columns_of(batch, layout.schema, context)
        if layout.format not in LINES:
            return rows
        # Tombstones are not written.
        whole = F.struct(*(F.col(f"`{name}`") for name in rows.columns))
        return rows.select(F.to_json(whole, {"ignoreNullFields": "false"}).alias("line"))
    if layout.format not in LINES:
        return as_wire(batch)
    text = F.col("value").cast("string")
    good = F.is_valid_utf8(text)
    if layout.format == "json":
        # Within JSON a line break can only be white space.
        good &= F.try_parse_json(text).isNotNull()
        line, cause = F.translate(text, "\r\n", "  "), "the value is not JSON"
    else:
        good &= ~text.contains("\n")
        line, cause = text, "the value is not one line of UTF-8"
    live = as_wire(batch).where(F.col("value").isNotNull())
    fits = F.coalesce(good, F.lit(False))  # noqa: FBT003
    refuse(live.where(~fits).withColumn("error", F.lit(cause)), context)
    return live.where(fits).select(line.alias("line"))


class _Task:
    """Stages the rows of one task and returns the staged files."""

    def __init__(self, layout: FileLayout, identity: BatchIdentity) -> None:
        self._layout = layout
        self._folder = f"{STAGING}/{identity.query_id}/{identity.batch_id}"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        file: _File | None = None
        done: list[_File] = []
        with ExitStack() as opened:
            for batch in batches:
                if not batch.num_rows:
                    continue
                if file is None:
                    file = opened.enter_context(_File(self._layout, self._folder, batch.schema))
                file.write(batch)
                if file.size_bytes >= self._layout.file_bytes:
                    opened.close()
                    done, file = [*done, file], None
        if file is not None:
            done.append(file)
        columns = [pa.array([each.path for each in done]), pa.array([each.rows for each in done])]
        if done:
            yield pa.RecordBatch.from_arrays(columns, ["path", "rows"])


class _File:
    """One staged file."""

    def __init__(self, layout: FileLayout, folder: str, schema: pa.Schema) -> None:
        end = ending(layout.format, layout.compression)
        self.path = f"{folder}/{uuid.uuid4().hex}{end}"
        self.rows = 0
        self._layout = layout
        self._schema = schema
        self._stack = ExitStack()

    def __enter__(self) -> "_File":
        self._file: IO[bytes] = self._stack.enter_context(self._layout.store.writer(self.path))
        self._encoder: Encoder = encoder(
            self._layout.format, self._layout.compression, self._file, self._schema
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._encoder.close()
        self._stack.__exit__(kind, error, trace)

    @property
    def size_bytes(self) -> int:
        return self._file.tell()

    def write(self, batch: pa.RecordBatch) -> None:
        self._encoder.write(batch)
        self.rows += batch.num_rows


class Manifests:
    """The manifests of a query."""

    def __init__(self, store: FileStore, identity: BatchIdentity) -> None:
        self._store = store
        self._query, self._batch = identity.query_id, identity.batch_id
        self._folder = f"{MANIFESTS}/{self._query}"
        self._path = f"{self._folder}/{self._batch}.json"

    def name(self, number: int, staged: str) -> str:
        """The final name of a file of the batch."""
        _, _, end = staged.rpartition("/")[2].partition(".")
        return f"part-{self._batch:08}-{number:04}-{self._query}.{end}"

    def read(self) -> Manifest | None:
        """The manifest of this batch, if there is one.

        Raises:
            Fenced: later batches of this query have a manifest.
            UnknownVersion: a later release wrote it, in a newer format.
        """
        data = self._store.read(self._path)
        if data is not None:
            return decoded(data, Manifest, "a manifest", self._path)
        ahead = max(self._decided(), default=-1)
        if ahead > self._batch:
            raise Fenced(
                ErrorCode.FENCED_EPOCH,
                f"batch {ahead} of this query is already written, this is {self._batch}",
                subject=self._query,
                remedy="two processes run the same pipeline: stop one, keep the newer checkpoint",
            )
        return None

    def decide(self, manifest: Manifest) -> Manifest:
        """Create the manifest; returns it, or the one that exists already."""
        if self._store.create(self._path, msgspec.json.encode(manifest)):
            return manifest
        first = self._store.read(self._path)
        assert first is not None, "an existing manifest was deleted"
        return decoded(first, Manifest, "a manifest", self._path)

    def tidy(self) -> None:
        """Delete files of failed attempts and old batches."""
        long_ago = time.time() - ORPHAN_AGE_S
        own = f"{STAGING}/{self._query}/"
        self._store.delete(
            [
                stored.path
                for stored in self._store.files(STAGING)
                if (stored.path.startswith(own) and _batch_of(stored.path, own) <= self._batch)
                or stored.modified_s < long_ago
            ]
        )
        old = self._batch - MANIFESTS_KEPT
        behind = [number for number in self._decided() if number < old]
        self._store.delete(f"{self._folder}/{number}.json" for number in behind)

    def _decided(self) -> list[int]:
        names = (stored.path.rpartition("/")[2] for stored in self._store.files(self._folder))
        return [int(name[:-5]) for name in names if name[:-5].isdigit() and name.endswith(".json")]


def _batch_of(path: str, own: str) -> int:
    number = path.removeprefix(own).partition("/")[0]
    return int(number) if number.isdigit() else 0
