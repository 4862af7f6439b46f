"""The ``datagen`` source: records generated from a seed and their number.

Row ``n`` is the same whenever and wherever it is generated, so that a pipeline that was killed can
be compared with one that was not. Values are computed column by column with NumPy; Spark converts
them to JSON, so that no Python runs per row.
"""

from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct

from mainstem.pipelines.connector.shapes import (
    Column,
    ConnectorContext,
    Discovered,
    Finding,
    failed,
    passed,
)
from mainstem.pipelines.connector.spec import Category, Spec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class DatagenConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Kind, number and rate of generated rows."""

    kind: Annotated[
        Literal["orders", "clicks", "sensors", "numbers"],
        Meta(description="Kind of rows; `discover` lists their columns."),
    ] = "orders"
    count: Annotated[int | None, Meta(description="Total number of rows; endless if unset.")] = None
    rows_per_second: Annotated[
        int | None,
        Meta(description="Rows per second; null: as fast as they can be written."),
    ] = 10
    seed: Annotated[int, Meta(ge=0, description="Seed of the random values.")] = 1
    start: Annotated[
        str, Meta(description="Timestamp of row 0, ISO 8601; later rows follow at the rate.")
    ] = "2026-01-01T00:00:00Z"
    key: Annotated[
        str | None,
        Meta(description="Column that becomes the record's key; the first one by default."),
    ] = None
    tasks: Annotated[int, Meta(ge=1, le=256, description="Spark tasks per batch.")] = 1


class DatagenSource:
    """Generates rows."""

    def spec(self) -> Spec:
        """The metadata of this source."""
        return Spec(
            name="datagen",
            kind="source",
            title="Generated rows",
            category=Category.TESTING,
            config=DatagenConfig,
        )

    def check(self, config: DatagenConfig) -> list[Finding]:
        """Whether the settings are consistent."""
        from mainstem.pipelines.connectors._datagen_rows import COLUMNS, start_us

        findings = []
        columns = [name for name, _ in COLUMNS[config.kind]]
        if config.key is not None and config.key not in columns:
            findings.append(
                failed(
                    f"{config.kind} has no column {config.key!r}",
                    f"its columns are {', '.join(columns)}",
                )
            )
        if (config.count is not None and config.count < 0) or (
            config.rows_per_second is not None and config.rows_per_second < 1
        ):
            findings.append(failed("count and rows_per_second must be positive"))
        try:
            start_us(config.start)
        except ValueError:
            findings.append(failed(f"start {config.start!r} is not a timestamp", "use ISO 8601"))
        return findings or [passed("generates rows")]

    def discover(self, config: DatagenConfig) -> list[Discovered]:
        """All kinds with their columns."""
        from mainstem.pipelines.connectors._datagen_rows import COLUMNS

        del config
        return [
            Discovered(
                name=kind,
                columns=tuple(Column(name, type_, nullable=False) for name, type_ in columns),
                key=(columns[0][0],),
                config={"kind": kind},
            )
            for kind, columns in COLUMNS.items()
        ]

    def read(
        self, spark: "SparkSession", config: DatagenConfig, context: ConnectorContext
    ) -> "DataFrame":
        """Rows as JSON, with the key column as key and the row's timestamp."""
        from pyspark.sql import functions as F

        from mainstem.pipelines.connectors._datagen_rows import (
            COLUMNS,
            DatagenDataSource,
            DatagenOptions,
        )
        from mainstem.pipelines.spark.settings_source import load

        options = DatagenOptions(
            kind=config.kind,
            seed=config.seed,
            start=config.start,
            tasks=config.tasks,
            progress_dir=str(context.state_dir),
            count=config.count,
            rows_per_second=config.rows_per_second,
            rows_per_batch_max=context.rows_per_batch_max,
        )
        frame = load(spark, DatagenDataSource, options, streaming=context.streaming)
        key = config.key or COLUMNS[config.kind][0][0]
        columns = [F.col(name) for name in frame.columns]
        return frame.select(
            F.col(key).cast("string").cast("binary").alias("key"),
            F.to_json(F.struct(*columns)).cast("binary").alias("value"),
            F.col("at").alias("timestamp"),
        )


SOURCE = DatagenSource()
