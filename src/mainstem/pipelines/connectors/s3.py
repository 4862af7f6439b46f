"""The ``s3`` connector: Parquet, JSON, CSV, Avro and text files in a bucket, as source and sink.

Files of a batch are staged, listed in a manifest that only one attempt can create, and then copied
to their names by the server: every record is written exactly once, and a listing of the prefix
shows no file of a failed attempt. Files of failed attempts are deleted.
"""

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta, Struct

from mainstem.model.errors import MainstemError
from mainstem.pipelines.connector.shapes import (
    ConnectorContext,
    Discovered,
    Finding,
    passed,
    refused,
    warned,
)
from mainstem.pipelines.connector.spec import Category, Secret, Spec
from mainstem.pipelines.connectors.file import (
    DISCOVERED_MAX,
    CompressionName,
    FileBytes,
    FilesPerBatch,
    FormatName,
    Key,
    Schema,
    WhenDone,
    compression_of,
    format_findings,
    missing_library,
    require_library,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from mainstem.pipelines.object_store.bucket import Bucket


class BucketConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The connection to the bucket."""

    bucket: Annotated[str, Meta(min_length=1, description="Name of the bucket.")]
    prefix: Annotated[str, Meta(description="Prefix of the object keys.")] = ""
    region: Annotated[str, Meta(description="Region of the bucket.")] = "us-east-1"
    endpoint: Annotated[
        str | None, Meta(description="URL of a server other than AWS: `https://host:port`.")
    ] = None
    access_key_id: Annotated[
        str | None,
        Meta(description="Access key; by default the credentials of the environment are used."),
    ] = None
    secret_access_key: Annotated[Secret | None, Meta(description="Secret access key.")] = None
    session_token: Annotated[Secret | None, Meta(description="Token of temporary credentials.")] = (
        None
    )
    retries: Annotated[int, Meta(ge=0, le=100, description="Retries of a request.")] = 5
    timeout_ms: Annotated[int, Meta(ge=100, description="Timeout of a request.")] = 30_000


class S3SourceConfig(BucketConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The files to read."""

    format: FormatName = "json"
    pattern: Annotated[str, Meta(description="Pattern of file names, with `*` and `?`.")] = "*"
    key: Key = None
    files_per_batch: FilesPerBatch = 100
    when_done: WhenDone = "keep"


class S3SinkConfig(BucketConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The files to write."""

    format: FormatName = "parquet"
    schema: Schema = None
    compression: CompressionName = "default"
    file_bytes: FileBytes = 128 * 1024 * 1024


def _bucket(config: BucketConfig) -> "Bucket":
    from mainstem.pipelines.object_store.bucket import Bucket, BucketSettings

    names = BucketSettings.__struct_fields__
    return Bucket(BucketSettings(**{name: getattr(config, name) for name in names}))


def _reached(config: BucketConfig) -> list[Finding]:
    """Lists the prefix, which needs a connection, the bucket and valid keys."""
    try:
        first = next(iter(_bucket(config).files("")), None)
    except MainstemError as error:
        return [refused(error)]
    if first is None:
        return [warned(f"{config.bucket} can be listed; the prefix is empty")]
    return [passed(f"{config.bucket} can be listed")]


class S3Source:
    """Reads the files of a bucket as they appear."""

    def spec(self) -> Spec:
        """The metadata of this source."""
        return Spec(
            name="s3",
            kind="source",
            title="Files of an S3 bucket",
            category=Category.STORAGE,
            config=S3SourceConfig,
            extra="s3",
            modules=("obstore",),
            limits_rows=False,
        )

    def check(self, config: S3SourceConfig) -> list[Finding]:
        """Whether the bucket can be listed with these keys."""
        missing = missing_library(config.format)
        return [missing] if missing is not None else _reached(config)

    def discover(self, config: S3SourceConfig) -> list[Discovered]:
        """The files that would be read, the first thousand."""
        from mainstem.pipelines.object_store.source import files_of

        found = files_of(_bucket(config), config.pattern)[:DISCOVERED_MAX]
        return [
            Discovered(name=stored.path, config={"pattern": stored.path.rpartition("/")[2]})
            for stored in found
        ]

    def read(
        self, spark: "SparkSession", config: S3SourceConfig, context: ConnectorContext
    ) -> "DataFrame":
        """Values of the files, as records."""
        from mainstem.pipelines.object_store import record_frames, source

        self.spec().require()
        objects = source.FileSourceOptions(
            format=config.format,
            pattern=config.pattern,
            files_per_batch=config.files_per_batch,
            state_dir=str(context.state_dir.resolve()),
            bucket=msgspec.to_builtins(_bucket(config).settings),
            delete=config.when_done == "delete" and not context.rehearsal,
        )
        return record_frames.records(spark, objects, key=config.key, streaming=context.streaming)


class S3Sink:
    """Writes files into a bucket, every record exactly once."""

    def spec(self) -> Spec:
        """The metadata of this sink."""
        return Spec(
            name="s3",
            kind="sink",
            title="Files of an S3 bucket",
            category=Category.STORAGE,
            config=S3SinkConfig,
            extra="s3",
            modules=("obstore",),
            notes="The server must support conditional puts (If-None-Match).",
        )

    def check(self, config: S3SinkConfig) -> list[Finding]:
        """Whether the bucket can be listed with these keys, and the settings are consistent."""
        found = format_findings(config.format, config.compression, config.schema)
        if (missing := missing_library(config.format)) is not None:
            found.append(missing)
        return found + _reached(config)

    def write(
        self, frame: "DataFrame", config: S3SinkConfig, context: ConnectorContext
    ) -> "DataStreamWriter":
        """A writer of files."""
        from mainstem.pipelines.object_store.sink import FileLayout, writer_of

        self.spec().require()
        require_library(config.format, "s3")
        layout = FileLayout(
            store=_bucket(config),
            format=config.format,
            schema=config.schema,
            compression=compression_of(config.format, config.compression),
            file_bytes=config.file_bytes,
        )
        return writer_of(frame, layout, context)


SOURCE = S3Source()
SINK = S3Sink()
