"""The ``iceberg`` sink: micro-batches into an Iceberg table, each exactly once.

The snapshot of a batch contains the query's id and the batch's number in its properties; a batch
that is in the history of the table is skipped. The catalogue serialises concurrent writers.
"""

from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.pipelines.connector.batches import BatchIdentity, written_by
from mainstem.pipelines.connector.shapes import (
    ConnectorContext,
    Finding,
    failed,
    passed,
    refused,
    warned,
)
from mainstem.pipelines.connector.spec import Category, Secret, Spec
from mainstem.pipelines.connectors.file import TableSchema, format_findings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

QUERY = "mainstem.query"
BATCH = "mainstem.batch"
ATTEMPTS = 5


class IcebergSinkConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The catalogue and the table to write."""

    table: Annotated[
        str, Meta(pattern=r"^[^.]+(\.[^.]+)+$", description="Table, as `namespace.name`.")
    ]
    catalog: Annotated[
        dict[str, Secret],
        Meta(
            description=(
                "Properties of the catalogue as PyIceberg names them: `type`, `uri`, `warehouse`,"
                " credentials of the store."
            )
        ),
    ]
    catalog_name: Annotated[
        str, Meta(description="Name of the catalogue; part of the table's key in an SQL catalogue.")
    ] = "default"
    schema: TableSchema = None
    create: Annotated[bool, Meta(description="Create namespace and table if missing.")] = True


class IcebergSink:
    """Appends to an Iceberg table."""

    def spec(self) -> Spec:
        """The metadata of this sink."""
        return Spec(
            name="iceberg",
            kind="sink",
            title="Iceberg table",
            category=Category.LAKEHOUSE,
            config=IcebergSinkConfig,
            extra="iceberg",
            modules=("pyiceberg", "sqlalchemy"),
        )

    def check(self, config: IcebergSinkConfig) -> list[Finding]:
        """Whether the catalogue answers and has the table."""
        found = format_findings("parquet", "default", config.schema)
        if found:
            return found
        try:
            known = _catalog(config).table_exists(config.table)
        except Exception as error:  # noqa: BLE001 - a check reports; catalogues raise anything
            return [refused(_refusal(error, config))]
        if known:
            return [passed(f"{config.table} exists")]
        if config.create:
            return [warned(f"table {config.table} does not exist yet; the first batch creates it")]
        return [failed(f"table {config.table} does not exist", "create it, or set create: true")]

    def write(
        self, frame: "DataFrame", config: IcebergSinkConfig, context: ConnectorContext
    ) -> "DataStreamWriter":
        """A writer that appends batch by batch."""
        self.spec().require()
        return written_by(
            frame, lambda batch, identity: write_batch(batch, identity, config, context)
        )


def write_batch(
    batch: "DataFrame",
    identity: BatchIdentity,
    config: IcebergSinkConfig,
    context: ConnectorContext,
) -> None:
    """Append one batch unless the table already has it."""
    from pyiceberg.exceptions import CommitFailedException

    from mainstem.pipelines.database_tables.rows import arrow_reader, table_columns

    owner = f"{context.pipeline}-{identity.query_id}"
    catalog = _catalog(config)
    columns = table_columns(batch, config.schema, context)
    for attempt in range(ATTEMPTS):
        rows = arrow_reader(columns)
        if rows is None:
            return
        table = _table(catalog, config, rows.schema)
        if last_batch(table, owner) >= identity.batch_id:
            return
        noted = {QUERY: owner, BATCH: str(identity.batch_id)}
        try:
            table.append(rows.read_all(), snapshot_properties=noted)
        except CommitFailedException as error:
            # Another writer has changed the table: check again which batches it has.
            if attempt + 1 == ATTEMPTS:
                raise _refusal(error, config) from error
        except (OSError, ValueError) as error:
            raise _refusal(error, config) from error
        else:
            return


def last_batch(table: Any, owner: str) -> int:
    """The last batch of a query that the table has; -1 when it has none."""
    for snapshot in reversed(table.metadata.snapshots):
        summary = snapshot.summary
        if summary is not None and summary.additional_properties.get(QUERY) == owner:
            return int(summary.additional_properties[BATCH])
    return -1


def _catalog(config: IcebergSinkConfig) -> Any:
    from pyiceberg.catalog import load_catalog

    return load_catalog(config.catalog_name, **config.catalog)


def _table(catalog: Any, config: IcebergSinkConfig, schema: Any) -> Any:
    from pyiceberg.exceptions import NoSuchTableError

    try:
        return catalog.load_table(config.table)
    except NoSuchTableError as error:
        if not config.create:
            raise InvalidRequest(
                ErrorCode.UNKNOWN_RESOURCE,
                f"table {config.table} does not exist",
                subject=config.table,
                remedy="create it, or set create: true",
            ) from error
    catalog.create_namespace_if_not_exists(config.table.rpartition(".")[0])
    return catalog.create_table_if_not_exists(config.table, schema=schema)


def _refusal(error: Exception, config: IcebergSinkConfig) -> MainstemError:
    text = " ".join(str(error).split()) or type(error).__name__
    for secret in config.catalog.values():
        text = text.replace(secret, "***") if len(secret) > 7 else text
    if isinstance(error, ValueError):
        return InvalidRequest(
            ErrorCode.INVALID_CONFIG, text[:400], subject=config.table, remedy="correct schema"
        )
    return Unavailable(
        ErrorCode.STORAGE_FAILED,
        text[:400],
        subject=config.table,
        remedy="check the properties of catalog and free space",
    )


SINK = IcebergSink()
