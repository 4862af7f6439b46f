"""Records as Arrow: the columns of Spark's Kafka source, without a copy of the bytes.

Needs ``mainstem[arrow]``.
"""

from typing import Any, Final

import pyarrow as pa

from mainstem.client.values import TopicPartition
from mainstem.model.records.columns import BinaryColumn, HeaderColumns, RecordColumns
from mainstem.model.records.plain_fields import NO_NAMES, plain_fields

HEADERS: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
# The field metadata by which Spark recognises a variant in Arrow.
VARIANT: Final = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={"variant": "true"}),
    ]
)
FIELDS: Final = pa.map_(pa.string(), VARIANT)
TIMESTAMP: Final = pa.timestamp("us", tz="UTC")


def record_schema(*, with_headers: bool, with_fields: bool = False) -> pa.Schema:
    """The columns of a topic."""
    fields = [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", TIMESTAMP),
        pa.field("timestampType", pa.int32()),
    ]
    if with_headers:
        fields.append(pa.field("headers", HEADERS))
    if with_fields:
        fields.append(pa.field("plainFields", FIELDS))
    return pa.schema(fields)


def record_batch(
    partition: TopicPartition, columns: RecordColumns, *, with_fields: bool = False
) -> pa.RecordBatch:
    """The rows of one partition."""
    rows = columns.row_count
    arrays = [
        binary_array(columns.keys, rows),
        binary_array(columns.values, rows),
        pa.repeat(pa.scalar(partition.topic, pa.string()), rows),
        pa.repeat(pa.scalar(partition.partition, pa.int32()), rows),
        pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(columns.offsets)]),
        pa.Array.from_buffers(TIMESTAMP, rows, [None, pa.py_buffer(columns.timestamps_us)]),
        pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(columns.timestamp_types)]),
    ]
    if columns.headers is not None:
        arrays.append(_header_array(columns.headers, rows))
    if with_fields:
        arrays.append(field_array(columns.values, rows))
    schema = record_schema(with_headers=columns.headers is not None, with_fields=with_fields)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def binary_array(column: BinaryColumn, rows: int, kind: Any = None) -> Any:
    """A column of byte strings, or of text."""
    return pa.Array.from_buffers(
        pa.binary() if kind is None else kind,
        rows,
        [_validity(column.validity), pa.py_buffer(column.offsets), pa.py_buffer(column.data)],
    )


def _header_array(headers: HeaderColumns, rows: int) -> Any:
    count = memoryview(headers.offsets).cast("i")[rows]
    names = binary_array(headers.names, count, pa.string())
    values = binary_array(headers.values, count)
    pairs = pa.Array.from_buffers(HEADERS.value_type, count, [None], children=[names, values])
    return pa.Array.from_buffers(
        HEADERS,
        rows,
        [_validity(headers.validity), pa.py_buffer(headers.offsets)],
        children=[pairs],
    )


def field_array(values: BinaryColumn, rows: int) -> Any:
    """The fields of values that are flat JSON objects; null where a value has to be parsed."""
    fields = plain_fields(values, rows)
    if fields is None:
        return pa.nulls(rows, FIELDS)
    count = memoryview(fields.offsets).cast("i")[rows]
    nameless = pa.repeat(pa.scalar(NO_NAMES, pa.binary()), count)
    variants = pa.Array.from_buffers(
        VARIANT, count, [None], children=[binary_array(fields.variants, count), nameless]
    )
    names = binary_array(fields.names, count, pa.string())
    pair = pa.struct([FIELDS.key_field, FIELDS.item_field])
    pairs = pa.Array.from_buffers(pair, count, [None], children=[names, variants])
    return pa.Array.from_buffers(
        FIELDS,
        rows,
        [_validity(fields.validity), pa.py_buffer(fields.offsets)],
        children=[pairs],
    )


def _validity(bits: bytes | None) -> Any:
    return None if bits is None else pa.py_buffer(bits)
