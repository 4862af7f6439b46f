"""The records in a piece of the log that read-committed readers see, in order."""

from collections.abc import Iterator
from typing import Protocol

from mainstem.model.records.batch import BatchHeader
from mainstem.model.records.record import Record, batches_of, records_of
from mainstem.protocols.visibility import Visibility


class Batches(Protocol):
    """A piece of whole batches."""

    @property
    def until_offset(self) -> int:
        """The offset after the last batch."""
        ...

    def read(self) -> bytes:
        """The bytes of the batches."""
        ...


class Aborts(Protocol):
    """Knows the aborted transactions of a stream."""

    def aborted_transactions(self, start: int, until: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions with records in [start, until)."""
        ...


def visible_batches(
    reader: Aborts, found: Batches, start: int
) -> Iterator[tuple[int, Iterator[Record]]]:
    """For each batch from ``start`` on: the offset after it, and its visible records.

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
