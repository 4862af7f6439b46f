"""Records to columns and back, and rows of a replication stream, compiled from ``native/``."""

from collections.abc import Sequence
from typing import Any, TypeVar

T = TypeVar("T", bound=tuple[Any, ...])

def decode(
    batches: Sequence[tuple[bytes, int, int, int, int | None, int]],
    start: int,
    until: int,
    with_headers: bool,
    /,
) -> tuple[Any, ...]: ...
def encode(
    rows: Any,
    keys: Any,
    values: Any,
    timestamps: Any,
    headers: Any,
    batch_bytes: int,
    /,
) -> list[tuple[bytes, int, int, int]]: ...
def partitions(keys: Any, row_count: int, partition_count: int, /) -> bytes: ...
def plain_fields(values: Any, /) -> tuple[Any, ...]: ...
def raw_records(kind: type[T], body: bytes, record_count: int, base_offset: int, /) -> list[T]: ...
def row_values(data: bytes, at: int, unchanged: Any, /) -> tuple[list[Any], int]: ...
