"""The ``file`` connector: folders of Parquet, JSON, CSV, Avro and text files, as source and sink.

``parquet``, ``json``, ``csv`` and ``avro`` are the same connector with the format in its name. The
sink writes every record exactly once (see ``object_store.sink``); the source reads every new file
once (see ``object_store.source``).
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct

from mainstem.pipelines.connector.shapes import (
    ConnectorContext,
    Discovered,
    Finding,
    failed,
    passed,
    warned,
)
from mainstem.pipelines.connector.spec import Category, Spec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from mainstem.pipelines.object_store.formats import Compression, Format

LOW_BYTES = 256 * 1024 * 1024
DISCOVERED_MAX = 1_000

Path_ = Annotated[str, Meta(min_length=1, description="Directory of the files.")]
Key = Annotated[str | None, Meta(description="Field of the value that becomes the record's key.")]
FilesPerBatch = Annotated[int, Meta(ge=1, description="Maximum number of files per micro-batch.")]
WhenDone = Annotated[
    Literal["keep", "delete"],
    Meta(description="What to do with a file when its records are in the topic."),
]
Schema = Annotated[
    str | None,
    Meta(
        description=(
            "Columns of the files, extracted from JSON values: `id bigint, at timestamp`. Without"
            " it, Parquet and Avro files have the fields of the record as columns, JSON and text"
            " files one value per line. Required for CSV."
        )
    ),
]
TableSchema = Annotated[
    str | None,
    Meta(
        description=(
            "Columns extracted from JSON values: `id bigint, at timestamp`. Without it, the fields"
            " of the record are the columns."
        )
    ),
]
CompressionName = Annotated[
    Literal["default", "none", "gzip", "zstd", "snappy", "lz4"],
    Meta(description="Compression of the files; by default snappy for Parquet, none for others."),
]
FileBytes = Annotated[
    int, Meta(ge=1024, description="Approximate size at which a new file is started.")
]
FormatName = Annotated[
    Literal["parquet", "json", "csv", "avro", "text"], Meta(description="Format of the files.")
]


class FolderSourceConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The files to read."""

    path: Path_
    pattern: Annotated[str, Meta(description="Pattern of file names, with `*` and `?`.")] = "*"
    key: Key = None
    files_per_batch: FilesPerBatch = 100
    when_done: WhenDone = "keep"


class FileSourceConfig(FolderSourceConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The files to read, and their format."""

    format: FormatName = "json"


class FolderSinkConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The directory, format and size of written files."""

    path: Path_
    schema: Schema = None
    compression: CompressionName = "default"
    file_bytes: FileBytes = 128 * 1024 * 1024


class FileSinkConfig(FolderSinkConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The directory, format and size of written files."""

    format: FormatName = "json"


def format_findings(format_: "Format", compression: str, schema: str | None) -> list[Finding]:
    """Whether settings of files are consistent."""
    from mainstem.pipelines.database_tables.rows import column_names
    from mainstem.pipelines.object_store.formats import COMPRESSIONS

    found = []
    allowed = {"default", *COMPRESSIONS[format_]}
    if compression not in allowed:
        remedy = f"one of {', '.join(sorted(allowed))}"
        found.append(failed(f"{format_} files do not support compression {compression}", remedy))
    if format_ == "csv" and schema is None:
        found.append(failed("CSV needs a schema", "such as: id bigint, name string"))
    if schema is not None:
        try:
            column_names(schema)
        except ValueError as error:
            found.append(failed(str(error), "such as: id bigint, at timestamp"))
    return found


def compression_of(format_: "Format", named: "CompressionName") -> "Compression":
    """The compression of a setting."""
    if named != "default":
        return named
    return "snappy" if format_ == "parquet" else "none"


class _FileConnector:
    """A connector of files whose format is in its name, or else in its settings."""

    def __init__(self, name: str = "file", format_: "Format | None" = None) -> None:
        self._name = name
        self._format = format_

    def _spec(self, kind: Literal["source", "sink"], config: type[Struct]) -> Spec:
        is_avro = self._format == "avro"
        return Spec(
            name=self._name,
            kind=kind,
            title=f"{self._format.capitalize()} files" if self._format else "Files of a directory",
            category=Category.FILES,
            config=config,
            extra="avro" if is_avro else "",
            modules=("fastavro",) if is_avro else (),
            limits_rows=kind == "sink",
        )

    def format_of(self, config: FolderSourceConfig | FolderSinkConfig) -> "Format":
        """The format of the files."""
        if self._format is not None:
            return self._format
        assert isinstance(config, FileSourceConfig | FileSinkConfig)
        return config.format


class FileSource(_FileConnector):
    """Reads files of a folder as they appear."""

    def spec(self) -> Spec:
        """The metadata of this source."""
        config = FolderSourceConfig if self._format else FileSourceConfig
        return self._spec("source", config)

    def check(self, config: FolderSourceConfig) -> list[Finding]:
        """Whether the folder exists and can be read."""
        folder = Path(config.path)
        if not folder.is_dir():
            return [
                failed(f"{folder} is not a directory", "create it, or correct path", retriable=True)
            ]
        if not os.access(folder, os.R_OK | os.X_OK):
            return [failed(f"{folder} cannot be read by this user", "grant read permission")]
        missing = missing_library(self.format_of(config))
        if missing is not None:
            return [missing]
        found = self.discover(config)
        if not found:
            return [warned(f"{folder} has no file {config.pattern} yet")]
        return [passed(f"{folder} can be read")]

    def discover(self, config: FolderSourceConfig) -> list[Discovered]:
        """The files that would be read, the first thousand."""
        from mainstem.pipelines.object_store.source import files_of
        from mainstem.pipelines.object_store.stores import FolderStore

        found = files_of(FolderStore(Path(config.path)), config.pattern)[:DISCOVERED_MAX]
        return [
            Discovered(
                name=stored.path,
                config={
                    "path": str((Path(config.path) / stored.path).parent),
                    "pattern": stored.path.rpartition("/")[2],
                },
            )
            for stored in found
        ]

    def read(
        self, spark: "SparkSession", config: FolderSourceConfig, context: ConnectorContext
    ) -> "DataFrame":
        """Values of the files, as records."""
        from mainstem.pipelines.object_store import record_frames, source

        objects = source.FileSourceOptions(
            format=self.format_of(config),
            pattern=config.pattern,
            files_per_batch=config.files_per_batch,
            state_dir=str(context.state_dir.resolve()),
            folder=str(Path(config.path).resolve()),
            delete=config.when_done == "delete" and not context.rehearsal,
        )
        return record_frames.records(spark, objects, key=config.key, streaming=context.streaming)


class FileSink(_FileConnector):
    """Writes files into a folder, every record exactly once."""

    def spec(self) -> Spec:
        """The metadata of this sink."""
        config = FolderSinkConfig if self._format else FileSinkConfig
        return self._spec("sink", config)

    def check(self, config: FolderSinkConfig) -> list[Finding]:
        """Whether the folder can be written to, and the settings are consistent."""
        from mainstem.pipelines.object_store.stores import (
            free_bytes,
            nearest_folder,
        )

        format_ = self.format_of(config)
        found = format_findings(format_, config.compression, config.schema)
        if (missing := missing_library(format_)) is not None:
            found.append(missing)
        folder = Path(config.path)
        standing = nearest_folder(folder)
        if not standing.is_dir():
            found.append(failed(f"{standing} is not a directory", "correct path"))
        elif not os.access(standing, os.W_OK | os.X_OK):
            found.append(
                failed(f"{standing} cannot be written to by this user", "grant write permission")
            )
        elif free_bytes(folder) < LOW_BYTES:
            found.append(warned(f"the disk of {folder} is almost full", "free disk space"))
        return found or [passed(f"{folder} can be written to")]

    def write(
        self, frame: "DataFrame", config: FolderSinkConfig, context: ConnectorContext
    ) -> "DataStreamWriter":
        """A writer of files."""
        from mainstem.pipelines.object_store.sink import FileLayout, writer_of
        from mainstem.pipelines.object_store.stores import FolderStore

        require_library(self.format_of(config), self._name)
        format_ = self.format_of(config)
        layout = FileLayout(
            store=FolderStore(Path(config.path).resolve()),
            format=format_,
            schema=config.schema,
            compression=compression_of(format_, config.compression),
            file_bytes=config.file_bytes,
        )
        return writer_of(frame, layout, context)


def missing_library(format_: str) -> Finding | None:
    """A finding if the format is Avro and its library is not installed."""
    if format_ != "avro" or not _avro("file").missing:
        return None
    return failed("avro needs fastavro, which is not installed", "pip install 'mainstem[avro]'")


def require_library(format_: str, name: str) -> None:
    """Check that the library of a format is installed.

    Raises:
        InvalidRequest: its library is not installed; the remedy names the extra.
    """
    if format_ == "avro":
        _avro(name).require()


def _avro(name: str) -> Spec:
    return Spec(
        name=name,
        kind="sink",
        title="Avro",
        category=Category.FILES,
        config=FolderSinkConfig,
        extra="avro",
        modules=("fastavro",),
    )


SOURCE = FileSource()
SINK = FileSink()
