"""A topic as a table: Arrow, pandas, Polars, Parquet.

    table = await to_arrow("localhost:9092", "orders")

Columns are those of Spark's Kafka source: key, value, topic, partition, offset, timestamp,
timestampType and, on request, headers. Guarantees: the table holds what the topic held at the time
of the call, partition by partition in the order of offsets; records of open and aborted
transactions are omitted unless requested. Needs ``mainstem[arrow]``; ``to_polars`` and
``to_pandas`` need those libraries.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from mainstem.client.cluster import Cluster
from mainstem.client.consuming.arrow_columns import record_batch, record_schema
from mainstem.client.consuming.offset_query import EARLIEST, LATEST, list_offsets
from mainstem.client.consuming.range_reader import RangeReader, RangeSettings
from mainstem.client.values import TopicPartition
from mainstem.model.errors import ErrorCode, InvalidRequest


class TableSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What to read: all records, unless set otherwise.

    ``since_ms`` and ``before_ms`` bound the time of records in milliseconds since 1970: reading
    starts at the first record at or after ``since_ms``, and ends before the first at or after
    ``before_ms``.
    """

    partitions: Collection[int] | None = None
    since_ms: int | None = None
    before_ms: int | None = None
    read_committed: bool = True
    with_headers: bool = False


ALL = TableSettings()


async def record_batches(
    cluster: Cluster | str | Sequence[str], topic: str, settings: TableSettings = ALL
) -> AsyncIterator[pa.RecordBatch]:
    """The records of a topic in Arrow batches of some ten thousand rows.

    Raises:
        InvalidRequest: a partition does not exist.
        MainstemError: the topic does not exist or cannot be read.
    """
    async with AsyncExitStack() as stack:
        if not isinstance(cluster, Cluster):
            cluster = await stack.enter_async_context(Cluster(cluster))
        for place, start, until in await _ranges(cluster, topic, settings):
            limits = RangeSettings(read_committed=settings.read_committed)
            reader = RangeReader(cluster, place, start, until, limits)
            async for columns in reader.columns(with_headers=settings.with_headers):
                if columns.row_count:
                    yield record_batch(place, columns)


async def to_arrow(
    cluster: Cluster | str | Sequence[str], topic: str, settings: TableSettings = ALL
) -> pa.Table:
    """The records of a topic as an Arrow table; see ``record_batches``."""
    batches = [batch async for batch in record_batches(cluster, topic, settings)]
    return pa.Table.from_batches(batches, record_schema(with_headers=settings.with_headers))


async def to_pandas(
    cluster: Cluster | str | Sequence[str], topic: str, settings: TableSettings = ALL
) -> Any:
    """The records of a topic as a pandas frame."""
    return (await to_arrow(cluster, topic, settings)).to_pandas()


async def to_polars(
    cluster: Cluster | str | Sequence[str], topic: str, settings: TableSettings = ALL
) -> Any:
    """The records of a topic as a Polars frame."""
    import polars  # noqa: PLC0415  # an optional package

    return polars.from_arrow(await to_arrow(cluster, topic, settings))


async def to_parquet(
    cluster: Cluster | str | Sequence[str],
    topic: str,
    path: str | Path,
    settings: TableSettings = ALL,
    *,
    compression: str = "zstd",
) -> int:
    """Writes the records of a topic to a Parquet file; returns how many.

    The file appears when it is complete.
    """
    target = Path(path)
    draft = target.with_name(f".{target.name}.draft")
    schema = record_schema(with_headers=settings.with_headers)
    rows = 0
    try:
        with pq.ParquetWriter(draft, schema, compression=compression) as writer:
            async for batch in record_batches(cluster, topic, settings):
                # Compressing takes long: in a thread, so that the connection stays alive meanwhile.
                await asyncio.to_thread(writer.write_batch, batch)
                rows += batch.num_rows
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return rows


async def _ranges(
    cluster: Cluster, topic: str, settings: TableSettings
) -> list[tuple[TopicPartition, int, int]]:
    """The partitions and offsets to read."""
    infos = await cluster.topics([topic])
    there = sorted(infos[topic].partitions)
    wanted = there if settings.partitions is None else sorted(settings.partitions)
    if missing := sorted(set(wanted) - set(there)):
        raise InvalidRequest(
            ErrorCode.INVALID_PARTITIONS, f"no partition {missing[0]}", subject=topic
        )
    places = [TopicPartition(topic, index) for index in wanted]
    ends = await _offsets(cluster, dict.fromkeys(places, LATEST), settings)
    starts = await _offsets(
        cluster,
        dict.fromkeys(places, EARLIEST if settings.since_ms is None else settings.since_ms),
        settings,
    )
    stops = ends
    if settings.before_ms is not None:
        stops = await _offsets(cluster, dict.fromkeys(places, settings.before_ms), settings)
    # -1: no record at or after that time.
    return [
        (
            place,
            starts[place] if starts[place] >= 0 else ends[place],
            stops[place] if stops[place] >= 0 else ends[place],
        )
        for place in places
    ]


async def _offsets(
    cluster: Cluster, wanted: dict[TopicPartition, int], settings: TableSettings
) -> dict[TopicPartition, int]:
    found = await list_offsets(cluster, wanted, read_committed=settings.read_committed)
    return {place: answer.offset for place, answer in found.items()}
