"""The records of a piece of the log that readers of committed messages see, in order."""

from collections.abc import Iterator
from typing import Protocol

from mainstem.model.records.batch import BatchHeader
from mainstem.model.records.record import Record, batches_of, records_of
from mainstem.protocols.visibility import Visibility


class Batches(Protocol):
    """Whole batches that can be read."""

    @property
    def until_offset(self) -> int:
        """The offset after the last of them."""
        ...

    def read(self) -> bytes:
        """The bytes of the batches."""
        ...


class Aborts(Protocol):
    """Who knows which transactions were aborted."""

    def aborted_transactions(self, start: int, until: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions with records in [start, until)."""
        ...


def visible_batches(
    reader: Aborts, found: Batches, start: int
) -> Iterator[tuple[int, Iterator[Record]]]:
    """For each batch from ``start`` on: the offset after it, and the records that count.

    Raises:
        Corrupt: the bytes are damaged.
    """
    visibility = Visibility(reader.aborted_transactions(start, found.until_offset))
    for header, batch in batches_of(found.read()):
        if header.until_offset > start:
            shows = visibility.shows(header, batch)
            yield header.until_offset, _from(header, batch, start) if shows else iter(())


def _from(header: BatchHeader, batch: memoryview, start: int) -> Iterator[Record]:
    if header.base_offset >= start:
        return records_of(batch)
    return (record for record in records_of(batch) if record.offset >= start)
