"""Encodes rows of a Spark frame to batches of records: topic, key, value, headers, partition, time.

Guarantees: rows of one partition keep their order; a key is assigned to the same partition as by
every Kafka producer; rows without a key share a partition for a while, so that batches stay large;
a row that cannot be written is an error with the reason.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mainstem.client.values import TopicPartition
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.records.columns import (
    EncodedRecords,
    InputColumn,
    InputHeaders,
    InputRecords,
    encode_columns,
    partitions_of_keys,
)
from mainstem.pipelines.spark.writing.record_columns import FrameColumns

MICROSECONDS: Final = 1_000
NO_KEY: Final = -1


class RowEncoder:
    """Encodes the Arrow batches of one task.

    Args:
        columns: the columns of the record's fields.
        topic: the topic of all rows, overriding their column.
        batch_bytes: the maximum size of a batch of records.
    """

    def __init__(self, columns: FrameColumns, topic: str | None, batch_bytes: int) -> None:
        self.partition_counts: dict[str, int] = {}  # must be set for every topic
        self._columns = columns
        self._topic = topic
        self._batch_bytes = batch_bytes
        self._turn = 0

    def unknown_topics(self, rows: pa.RecordBatch) -> list[str]:
        """The topics of some rows whose number of partitions is not known yet."""
        if self._topic is not None:
            return [] if self._topic in self.partition_counts else [self._topic]
        names = pc.unique(self._topic_column(rows)).to_pylist()
        return [name for name in names if name not in self.partition_counts]

    def encode(
        self, rows: pa.RecordBatch, now_ms: int
    ) -> Iterator[tuple[TopicPartition, EncodedRecords]]:
        """The record batches of some rows.

        Raises:
            InvalidRequest: a row has no topic, or a partition that the topic does not have.
        """
        given = self._given(rows, now_ms)
        for topic, members in self._by_topic(rows):
            partitions = self._partitions(rows, given, topic, members)
            order = np.argsort(partitions, kind="stable")
            ordered = partitions[order]
            starts = np.flatnonzero(np.diff(ordered, prepend=ordered[0] - 1))
            for start, until in zip(starts, [*starts[1:], len(ordered)], strict=True):
                wanted = np.ascontiguousarray(members[order[start:until]])
                place = TopicPartition(topic, int(ordered[start]))
                for records in encode_columns(given, wanted, self._batch_bytes):
                    yield place, records

    def _given(self, rows: pa.RecordBatch, now_ms: int) -> InputRecords:
        columns = self._columns
        headers = None
        if columns.headers is not None:
            headers = _given_headers(rows.column(columns.headers))
        key = None if columns.key is None else _given(_binary(rows.column(columns.key), "key"))
        value = _given(_binary(rows.column(columns.value), "value"))
        return InputRecords(key, value, self._timestamps(rows, now_ms), headers)

    def _timestamps(self, rows: pa.RecordBatch, now_ms: int) -> Any:
        if self._columns.timestamp is None:
            return np.full(rows.num_rows, now_ms, np.int64)
        column = rows.column(self._columns.timestamp)
        if not pa.types.is_timestamp(column.type):
            raise _wrong_type("timestamp", column.type, "timestamp")
        micros = column.cast(pa.timestamp("us", tz=column.type.tz)).view(pa.int64())
        times = micros.fill_null(now_ms * MICROSECONDS).to_numpy(zero_copy_only=False)
        return np.ascontiguousarray(np.floor_divide(times, MICROSECONDS))

    def _by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[str, Any]]:
        if self._topic is not None:
            yield self._topic, np.arange(rows.num_rows, dtype=np.int64)
            return
        coded = pc.dictionary_encode(self._topic_column(rows))
        codes = coded.indices.to_numpy(zero_copy_only=False)
        for code, name in enumerate(coded.dictionary.to_pylist()):
            yield name, np.flatnonzero(codes == code).astype(np.int64)

    def _topic_column(self, rows: pa.RecordBatch) -> Any:
        assert self._columns.topic is not None, "checked by find_record_columns"
        column = rows.column(self._columns.topic)
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            raise _wrong_type("topic", column.type, "string")
        if column.null_count:
            raise InvalidRequest(
                ErrorCode.INVALID_TOPIC_NAME,
                f"{column.null_count} rows have no topic",
                remedy="set the option topic, or set the column topic in every row",
            )
        return column

    def _partitions(
        self, rows: pa.RecordBatch, given: InputRecords, topic: str, members: Any
    ) -> Any:
        count = self.partition_counts[topic]
        if given.keys is None:
            found = np.full(len(members), NO_KEY, np.int32)
        else:
            found = np.frombuffer(partitions_of_keys(given.keys, count), np.int32)[members].copy()
        self._turn += 1
        found[found == NO_KEY] = self._turn % count
        if self._columns.partition is None:
            return found
        column = rows.column(self._columns.partition)
        if not pa.types.is_integer(column.type):
            raise _wrong_type("partition", column.type, "int")
        wanted = column.fill_null(NO_KEY).to_numpy(zero_copy_only=False)[members]
        beyond = wanted[(wanted < NO_KEY) | (wanted >= count)]
        if len(beyond):
            raise InvalidRequest(
                ErrorCode.INVALID_PARTITIONS,
                f"partition {beyond[0]} of {count}",
                subject=topic,
                remedy="drop the column partition to choose the partition by key",
            )
        return np.where(wanted == NO_KEY, found, wanted)


def _binary(column: Any, name: str) -> Any:
    kind = column.type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if not (is_text or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        raise _wrong_type(name, kind, "string or binary")
    return column if pa.types.is_string(kind) else column.cast(pa.binary())


def _given(column: Any) -> InputColumn:
    validity, offsets, data = column.buffers()
    if not column.null_count:
        validity = None
    if offsets is None:  # Arrow has no offsets buffer in a column without rows
        offsets = bytes(4)
    return InputColumn(validity, offsets, data, column.offset, len(column))


def _given_headers(column: Any) -> InputHeaders:
    kind = column.type
    if not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type):
        raise _wrong_type("headers", kind, "array<struct<key: string, value: binary>>")
    validity, offsets = column.buffers()[:2]
    lists = InputColumn(
        validity if column.null_count else None,
        bytes(4) if offsets is None else offsets,
        None,
        column.offset,
        len(column),
    )
    names, values = column.values.flatten()
    return InputHeaders(
        lists, _given(_binary(names, "headers")), _given(_binary(values, "headers"))
    )


def _wrong_type(name: str, found: Any, wanted: str) -> InvalidRequest:
    return InvalidRequest(
        ErrorCode.INVALID_REQUEST,
        f"column {name} has type {found}",
        remedy=f"use {wanted}: cast({name} AS …)",
    )
