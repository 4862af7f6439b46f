"""The ``delta`` sink: micro-batches into a Delta Lake table, each exactly once.

The commit of a batch contains the query's id and the batch's number as an application transaction,
Delta's mechanism against duplicate writes. A batch that the table already has is skipped.
"""

from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.pipelines.connector.batches import BatchIdentity, written_by
from mainstem.pipelines.connector.shapes import ConnectorContext, Finding, passed, refused, warned
from mainstem.pipelines.connector.spec import Category, Secret, Spec
from mainstem.pipelines.connectors.file import TableSchema, format_findings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


class DeltaSinkConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table and how it is written."""

    path: Annotated[
        str, Meta(min_length=1, description="Directory of the table, or `s3://bucket/folder`.")
    ]
    schema: TableSchema = None
    partition_by: Annotated[list[str], Meta(description="Partition columns.")] = []
    merge_schema: Annotated[bool, Meta(description="Add columns that the table does not have.")] = (
        False
    )
    storage_options: Annotated[
        dict[str, Secret], Meta(description="Options of the object store, such as access keys.")
    ] = {}


class DeltaSink:
    """Appends to a Delta table."""

    def spec(self) -> Spec:
        """The metadata of this sink."""
        return Spec(
            name="delta",
            kind="sink",
            title="Delta Lake table",
            category=Category.LAKEHOUSE,
            config=DeltaSinkConfig,
            extra="delta",
            modules=("deltalake",),
        )

    def check(self, config: DeltaSinkConfig) -> list[Finding]:
        """Whether the table exists and has the columns."""
        found = format_findings("parquet", "default", config.schema)
        if found:
            return found
        try:
            table = _table(config)
        except MainstemError as error:
            return [refused(error)]
        if table is None:
            return [warned(f"{config.path} has no table yet; the first batch creates it")]
        return [passed(f"{config.path} is at version {table.version()}")]

    def write(
        self, frame: "DataFrame", config: DeltaSinkConfig, context: ConnectorContext
    ) -> "DataStreamWriter":
        """A writer that appends batch by batch."""
        self.spec().require()
        return written_by(
            frame, lambda batch, identity: write_batch(batch, identity, config, context)
        )


def write_batch(
    batch: "DataFrame", identity: BatchIdentity, config: DeltaSinkConfig, context: ConnectorContext
) -> None:
    """Append one batch unless the table already has it."""
    from deltalake import CommitProperties, Transaction, write_deltalake
    from deltalake.exceptions import DeltaError

    from mainstem.pipelines.database_tables.rows import arrow_reader, table_columns

    table = _table(config)
    application = f"mainstem-{context.pipeline}-{identity.query_id}"
    if table is not None:
        done = table.transaction_version(application)
        if done is not None and done >= identity.batch_id:
            return
    rows = arrow_reader(table_columns(batch, config.schema, context))
    if rows is None:
        return
    noted = Transaction(application, identity.batch_id)
    given: dict[str, Any] = {}
    if config.merge_schema:
        given["schema_mode"] = "merge"
    if table is None and config.partition_by:
        given["partition_by"] = config.partition_by
    try:
        write_deltalake(
            table if table is not None else config.path,
            rows,
            mode="append",
            storage_options=config.storage_options or None,
            commit_properties=CommitProperties(app_transactions=[noted]),
            **given,
        )
    except (DeltaError, OSError) as error:
        raise _refusal(error, config) from error


def _table(config: DeltaSinkConfig) -> Any:
    """The table; None when it does not exist."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        if not DeltaTable.is_deltatable(config.path, config.storage_options or None):
            return None
        return DeltaTable(config.path, storage_options=config.storage_options or None)
    except (DeltaError, OSError) as error:
        raise _refusal(error, config) from error


def _refusal(error: Exception, config: DeltaSinkConfig) -> MainstemError:
    from deltalake.exceptions import SchemaMismatchError

    text = " ".join(str(error).split())
    for secret in config.storage_options.values():
        text = text.replace(secret, "***")
    if isinstance(error, SchemaMismatchError) or "schema" in text.lower():
        return InvalidRequest(
            ErrorCode.INVALID_CONFIG,
            text[:400],
            subject=config.path,
            remedy="correct schema, or set merge_schema: true",
        )
    return Unavailable(
        ErrorCode.STORAGE_FAILED,
        text[:400],
        subject=config.path,
        remedy="check path, storage_options and free space",
    )


SINK = DeltaSink()
