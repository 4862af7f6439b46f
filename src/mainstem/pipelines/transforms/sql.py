"""``sql``: windows, aggregations, self-joins and other Spark SQL queries on records.

The step gets the records as a table ``input``, whose columns are those of ``schema`` and, with a
leading underscore, the fields of the record: ``_topic``, ``_key``, ``_headers``, ``_partition``,
``_timestamp``. Columns of the result with these names become the fields of new records, and all
others one JSON object; a column ``_value`` is used as the value itself.
"""

import re
from collections.abc import Iterable
from itertools import count
from typing import ClassVar, Final, Literal

from msgspec import Struct
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType, VariantType

from mainstem.pipelines.connector.wire import WIRE_TYPES
from mainstem.pipelines.problems import FileProblem, Problems
from mainstem.pipelines.transforms.predicate import StepProblem
from mainstem.pipelines.transforms.rows import FIELDS, Rows, StepContext, open_rows
from mainstem.pipelines.transforms.step import Step
from mainstem.pipelines.transforms.typed_columns import (
    PARTS,
    dead_of,
    read_schema,
    table_of,
    with_columns,
)

OutputMode = Literal["append", "update", "complete"]
_DURATION: Final = re.compile(r"\d+ (millisecond|second|minute|hour|day|week)s?")
_KEEP_NULLS: Final = {"ignoreNullFields": "false"}
_numbers = count()


class Watermark(Struct, frozen=True, forbid_unknown_fields=True):
    """How late records may be: windows older than the newest ``column`` minus ``delay`` close."""

    column: str
    delay: str


class Sql(Step, frozen=True, kw_only=True):
    """Runs a query on the records. It supports no predicate: use WHERE in the query.

    ``schema`` declares the columns of the JSON values, such as ``id bigint, at timestamp``; values
    that do not match fail. Without it there is a column ``fields``, a ``map<string, variant>``.
    Tombstones are rows of nulls. ``output_mode`` is how results of aggregations are written:
    ``append`` once a window has closed (requires ``watermark``), ``update`` whenever they change.
    """

    needs_fields: ClassVar[bool] = False  # with a schema they are parsed differently
    query: str
    schema: str | None = None
    watermark: Watermark | None = None
    output_mode: OutputMode = "append"

    def problems(self) -> Iterable[StepProblem]:
        """Problems that the types of the settings do not express; Spark parses the query later."""
        if not re.search(r"\binput\b", self.query, re.IGNORECASE):
            yield "query", "the query does not read the table input", "SELECT ... FROM input"
        if self.watermark is not None and not _DURATION.fullmatch(self.watermark.delay):
            yield (
                "watermark.delay",
                f"{self.watermark.delay!r} is not a duration",
                "such as 10 minutes",
            )

    def apply(self, rows: Rows, turn: StepContext) -> Rows:
        """The records of the result; those that cannot be parsed are set aside."""
        aside = rows.set_aside
        if self.schema is None:
            marked = rows.parse().require_fields(turn).close(keep=(FIELDS,))
            aside = (*aside, dead_of(marked))
            table = marked.where(F.col("error").isNull()).select(
                F.col(FIELDS).alias("fields"), *(F.col(part).alias(f"_{part}") for part in PARTS)
            )
        else:
            columns = read_schema(self.schema, f"{turn.where}.config.schema")
            checked = with_columns(rows.close(), columns, turn.label)
            aside = (*aside, dead_of(checked))
            table = table_of(checked, columns)
        return open_rows(self._answer(table, turn.where), set_aside=aside)

    def _answer(self, table: DataFrame, where: str) -> DataFrame:
        spark = table.sparkSession
        view = f"mainstem_transform_input_{next(_numbers)}"
        try:
            if self.watermark is not None:
                table = table.withWatermark(self.watermark.column, self.watermark.delay)
            table.createOrReplaceTempView(view)
            # The user's query may begin with WITH, hence the parentheses round it.
            named = f"WITH input AS (TABLE {view}) SELECT * FROM (\n{self.query}\n)"  # noqa: S608
            return _as_records(spark.sql(named))
        except (AnalysisException, ParseException) as error:
            problem_text = str(error).strip().splitlines()[0]
            raise Problems([FileProblem(f"{where}.config.query", problem_text)]) from error
        finally:
            spark.catalog.dropTempView(view)


def _as_records(result: DataFrame) -> DataFrame:
    names = {f"_{name}": name for name in WIRE_TYPES}
    parts = [
        _part(result, column, name) for column, name in names.items() if column in result.columns
    ]
    others = [F.col(f"`{name}`") for name in result.columns if name not in names]
    if "_value" not in result.columns:
        parts.append(F.to_json(F.struct(*others), _KEEP_NULLS).cast("binary").alias("value"))
    return result.select(*parts)


def _part(result: DataFrame, column: str, name: str) -> Column:
    kind = result.schema[column].dataType
    if name in {"key", "value"} and isinstance(
        kind, ArrayType | MapType | StructType | VariantType
    ):
        return F.to_json(F.col(column)).cast("binary").alias(name)
    if name in {"key", "value"} and not isinstance(kind, BinaryType):
        return F.col(column).cast("string").cast("binary").alias(name)
    return F.col(column).cast(WIRE_TYPES[name]).alias(name)
