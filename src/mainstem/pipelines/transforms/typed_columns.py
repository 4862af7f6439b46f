"""JSON values as columns of a declared schema, for table sinks and for the sql step.

    good, bad = structured(frame, "id bigint, amount decimal(10,2), at timestamp")

Guarantees: a value that is not one JSON object, or in which a field does not match its column, is
never partially read: it is returned unmodified, with the reason. Absent fields are null; fields
without a column are omitted; decimals keep their digits.
"""

from typing import Final, NamedTuple

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from mainstem.pipelines.connector.wire import WIRE_TYPES, as_wire
from mainstem.pipelines.problems import FileProblem, Problems
from mainstem.pipelines.transforms.fields import false

PARTS: Final = tuple(name for name in WIRE_TYPES if name != "value")
_TYPED: Final = "__typed"
_CORRUPT: Final = "__corrupt"
_OPTIONS: Final = {
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
    "columnNameOfCorruptRecord": _CORRUPT,
}


class TransformResult(NamedTuple):
    """Records that were processed, and those that failed (wire columns, ``error``, ``step``)."""

    frame: DataFrame
    dead: DataFrame | None


def structured(
    frame: DataFrame, schema: str | StructType, *, step: str = "schema"
) -> TransformResult:
    """A wire frame as columns of a schema, with the record's fields as ``_topic``, ``_key`` ...

    Tombstones are rows in which every column of the schema is null.

    Raises:
        Problems: the schema is invalid, or has a column named like a field of the record.
    """
    columns = read_schema(schema, step)
    none = F.lit(None).cast("string")
    marked = as_wire(frame).withColumns({"error": none, "step": none})
    checked = with_columns(marked, columns, step)
    return TransformResult(table_of(checked, columns), dead_of(checked))


def read_schema(schema: str | StructType, where: str) -> StructType:
    """The columns that a schema declares.

    Raises:
        Problems: it is invalid, or a column is named like a field of the record.
    """
    try:
        columns = schema if isinstance(schema, StructType) else DataType.fromDDL(schema)
    except (AnalysisException, ParseException, TypeError) as error:
        problem_text = str(error).strip().splitlines()[0]
        remedy = "such as: id bigint, amount decimal(10,2), at timestamp"
        raise Problems([FileProblem(where, f"not a schema: {problem_text}", remedy)]) from error
    if not isinstance(columns, StructType):
        raise Problems([FileProblem(where, "not a schema: it has no columns")])
    clashes = sorted({f"_{part}" for part in PARTS} & set(columns.names))
    if clashes:
        raise Problems([FileProblem(where, f"{', '.join(clashes)} is a reserved name")])
    return columns


def with_columns(marked: DataFrame, columns: StructType, step: str) -> DataFrame:
    """Parses the values of records without errors, and marks those that do not match."""
    framed = F.concat(F.lit('{"r":'), F.col("value").cast("string"), F.lit(',"s":0}'))
    kind = f"struct<r:{columns.simpleString()},s:int,{_CORRUPT}:string>"
    parsed = F.from_json(framed, kind, _OPTIONS)
    frame = marked.withColumn(_TYPED, F.when(F.col("error").isNull(), parsed))
    typed = F.col(_TYPED)
    whole = typed["s"].isNotNull() & typed["r"].isNotNull() & typed[_CORRUPT].isNull()
    unfit = F.col("error").isNull() & F.col("value").isNotNull()
    unfit &= ~F.coalesce(whole & F.is_valid_utf8(F.col("value").cast("string")), false())
    problem_text = f"the value does not match the schema {columns.simpleString()[7:-1]}"[:400]
    return pinned(
        frame,
        {
            "error": F.when(unfit, F.lit(problem_text)).otherwise(F.col("error")),
            "step": F.when(unfit, F.lit(step)).otherwise(F.col("step")),
        },
    )


def table_of(checked: DataFrame, columns: StructType) -> DataFrame:
    """The rows that match, as columns."""
    typed = F.col(_TYPED)["r"]
    parts = (F.col(part).alias(f"_{part}") for part in PARTS)
    own = (typed[name].alias(name) for name in columns.names)
    return checked.where(F.col("error").isNull()).select(*own, *parts)


def dead_of(checked: DataFrame) -> DataFrame:
    """The records that failed, here or before."""
    return checked.where(F.col("error").isNotNull()).select(*WIRE_TYPES, "error", "step")


def pinned(frame: DataFrame, columns: dict[str, Column]) -> DataFrame:
    """Adds columns in such a way that a filter on them is not pushed down.

    Spark would otherwise push the filter to the source and parse every value a second time there.
    It does not push through projections that it considers non-deterministic. Streams allow
    ``rand``, and the optimiser knows that ``rand() >= 0`` is true, but not this.
    """
    always = F.rand(0) + F.lit(1.0) > F.lit(0.5)
    first, *rest = columns
    pins = {first: F.when(always, columns[first])}
    return frame.withColumns(pins | {name: columns[name] for name in rest})
