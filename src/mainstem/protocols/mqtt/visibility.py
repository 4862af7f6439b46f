"""The records of a piece of the log that readers of committed messages see, in order."""

from collections.abc import Iterator
from struct import Struct

from mainstem.broker.api import Slice, StreamDoor
from mainstem.model.batch import BatchHeader
from mainstem.model.errors import Corrupt
from mainstem.model.record import Record, batches_of, records_of

_MARKER = Struct(">hh")  # version, type
_ABORT = 0


def visible_batches(
    door: StreamDoor, found: Slice, start: int
) -> Iterator[tuple[int, Iterator[Record]]]:
    """For each batch from ``start`` on: the offset after it, and the records that count.

    No markers, and nothing of an aborted transaction: a producer's transactional batches are hidden
    from the first offset of such a transaction until its marker.

    Raises:
        Corrupt: the bytes are damaged.
    """
    aborted = door.aborted_transactions(start, found.until_offset)
    coming = sorted(aborted, key=lambda pair: pair[1], reverse=True)
    hidden: set[int] = set()
    for header, batch in batches_of(found.read()):
        if header.until_offset <= start:
            continue
        while coming and coming[-1][1] < header.until_offset:
            hidden.add(coming.pop()[0])
        if header.is_control:
            if header.producer_id in hidden and _is_abort(batch):
                hidden.discard(header.producer_id)
            yield header.until_offset, iter(())
        elif header.is_transactional and header.producer_id in hidden:
            yield header.until_offset, iter(())
        else:
            yield header.until_offset, _from(header, batch, start)


def _from(header: BatchHeader, batch: memoryview, start: int) -> Iterator[Record]:
    if header.base_offset >= start:
        return records_of(batch)
    return (record for record in records_of(batch) if record.offset >= start)


def _is_abort(batch: memoryview) -> bool:
    marker = next(records_of(batch), None)
    if marker is None or marker.key is None or len(marker.key) < _MARKER.size:
        raise Corrupt("a marker without its kind")
    _, kind = _MARKER.unpack_from(marker.key)
    return bool(kind == _ABORT)
