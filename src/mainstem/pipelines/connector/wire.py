"""The wire frame: the set of columns in which connectors and topics exchange records.

    topic string, key binary, value binary, headers array<struct<key string, value binary>>,
    partition int, timestamp timestamp

An additional column may be ``plainFields map<string, variant>``: the fields of a value that the
source has already parsed, or null if the transforms parse it.

All but ``value`` may be absent, all may be null. A null value is a tombstone; a null partition is
chosen by key; a null timestamp is the time of writing.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

WIRE_TYPES = {
    "topic": "string",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
    "partition": "int",
    "timestamp": "timestamp",
}
PLAIN_FIELDS = "plainFields"
FIELDS_TYPE = "map<string,variant>"


def is_wire(frame: DataFrame) -> bool:
    """Whether a frame consists of records rather than of a source's own columns."""
    types = dict(frame.dtypes)
    if types.get(PLAIN_FIELDS) == FIELDS_TYPE:
        del types[PLAIN_FIELDS]
    return types.get("value") in {"binary", "string"} and not set(types) - set(WIRE_TYPES)


def key_of_value(field: str) -> Column:
    """A field of the JSON value as a key; null if it is absent."""
    parsed = F.try_parse_json(F.col("value").cast("string"))
    return F.try_variant_get(parsed, f"$.{field}", "string").cast("binary").alias("key")


def as_wire(frame: DataFrame, *, topic: str | None = None) -> DataFrame:
    """All wire columns of any frame, in order, and its plain fields; null topics become ``topic``.

    A frame of other columns becomes one JSON object per row; nulls are kept as nulls.
    """
    if not is_wire(frame):
        whole = F.to_json(F.struct(*(F.col(_quoted(name)) for name in frame.columns)), _KEEP_NULLS)
        frame = frame.select(whole.alias("value"))
    present = set(frame.columns)

    def column(name: str, kind: str) -> Column:
        value = F.col(name) if name in present else F.lit(None)
        value = value.cast(kind)
        if name == "topic" and topic is not None:
            value = F.coalesce(value, F.lit(topic))
        return value.alias(name)

    beside = [PLAIN_FIELDS] if PLAIN_FIELDS in present else []
    return frame.select(*(column(name, kind) for name, kind in WIRE_TYPES.items()), *beside)


_KEEP_NULLS = {"ignoreNullFields": "false"}


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
