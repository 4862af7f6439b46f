"""Facts in an internal stream: to record batches and back.

A decision may hold more facts than fit one batch; it is then stored in pieces, in order, and what
has been stored counts even if a later piece fails.
"""

from collections.abc import Iterator, Sequence

from mainstem.coordination.records import Fact, decode, encode
from mainstem.model.limits import KIB
from mainstem.model.record import Record, batches_of, build_batch, records_of

# Small beside the largest batch a stream takes, large beside its header.
_BATCH_BYTES = 512 * KIB


def batches(facts: Sequence[Fact], wall_ms: int) -> Iterator[tuple[Sequence[Fact], bytearray]]:
    """The facts in pieces, each with the batch that stores it."""
    start = size_bytes = 0
    records: list[Record] = []
    for until, fact in enumerate(facts):
        key, value = encode(fact)
        record_bytes = len(key) + len(value or b"")
        if records and size_bytes + record_bytes > _BATCH_BYTES:
            yield facts[start:until], build_batch(records)
            start, size_bytes, records = until, 0, []
        records.append(Record(0, wall_ms, key, value))
        size_bytes += record_bytes
    if records:
        yield facts[start:], build_batch(records)


def facts_in(data: bytes) -> Iterator[tuple[int, list[Fact]]]:
    """For each whole batch in ``data``: the offset after it and the facts it holds.

    Raises:
        Corrupt: the bytes are damaged.
    """
    for header, batch in batches_of(data):
        if header.is_control:
            yield header.until_offset, []
            continue
        decoded = (decode(record.key, record.value) for record in records_of(batch))
        yield header.until_offset, [fact for fact in decoded if fact is not None]
