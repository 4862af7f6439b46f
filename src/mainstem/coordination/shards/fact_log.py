"""Encoding of facts as record batches of an internal stream.

A decision with more facts than fit one batch is stored in several batches, in order; those that
are stored take effect even if a later one fails. Facts that take effect only once a transaction
commits go into transactional batches of its producer; the marker that ends it is a fact, too.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Protocol, TypeVar

from mainstem.coordination.transactions.state import ProducerIdentity
from mainstem.model.errors import UnknownVersion
from mainstem.model.limits import KIB
from mainstem.model.records.batch import NO_SEQUENCE, TRANSACTIONAL_MASK
from mainstem.model.records.record import (
    NO_PRODUCER,
    ProducerStamp,
    Record,
    batches_of,
    build_batch,
    records_of,
)
from mainstem.streams.producers.transaction_markers import marker_of

# Small compared to the largest batch of a stream, large compared to its header.
_BATCH_BYTES = 512 * KIB

FactT = TypeVar("FactT")


class FactCodec(Protocol[FactT]):
    """Codec between the facts and the records of one internal topic.

    Key and value start with their versions, of ``version_bytes`` each; ``versions`` describes the
    known ones.
    """

    @property
    def version_bytes(self) -> int:
        """Size of the version field."""
        ...

    @property
    def versions(self) -> str:
        """The versions that can be decoded, as text."""
        ...

    def encode(self, fact: FactT) -> tuple[bytes, bytes | None]:
        """Encode ``fact`` as key and value of a record."""
        ...

    def decode(self, key: bytes | None, value: bytes | None) -> FactT | None:
        """Decode a record; None for an unknown type or version."""
        ...

    def producer_of(self, fact: FactT) -> ProducerIdentity | None:
        """The producer whose transaction the fact waits for, or None."""
        ...

    def pending(self, fact: FactT, producer: ProducerIdentity) -> FactT | None:
        """The fact as pending in a transaction; None if such facts are not transactional."""
        ...

    def ended(self, producer: ProducerIdentity, *, commit: bool) -> FactT | None:
        """The fact that a transaction ended; None if no fact of the topic depends on it."""
        ...


def batches(
    facts: Sequence[FactT], wall_ms: int, codec: FactCodec[FactT]
) -> Iterator[tuple[Sequence[FactT], bytearray]]:
    """Split facts into batches; yields the facts of each batch with its bytes."""
    for producer, run in groupby(facts, codec.producer_of):
        stamp, flags = NO_PRODUCER, 0
        if producer is not None:
            stamp, flags = ProducerStamp(*producer, NO_SEQUENCE), TRANSACTIONAL_MASK
        piece: list[FactT] = []
        records: list[Record] = []
        size_bytes = 0
        for fact in run:
            key, value = codec.encode(fact)
            record_bytes = len(key) + len(value or b"")
            if records and size_bytes + record_bytes > _BATCH_BYTES:
                yield piece, build_batch(records, flags=flags, producer=stamp)
                piece, records, size_bytes = [], [], 0
            piece.append(fact)
            records.append(Record(0, wall_ms, key, value))
            size_bytes += record_bytes
        yield piece, build_batch(records, flags=flags, producer=stamp)


def facts_in(data: bytes, codec: FactCodec[FactT]) -> Iterator[tuple[int, list[FactT]]]:
    """For each complete batch in ``data``: the offset after it and its facts.

    Raises:
        Corrupt: the bytes are damaged.
        UnknownVersion: a record has an unknown type or version; skipping it would make the state
            differ from that of other nodes.
    """
    for header, batch in batches_of(data):
        producer = ProducerIdentity(header.producer_id, header.producer_epoch)
        found: list[FactT | None]
        if header.is_control:
            found = [codec.ended(producer, commit=marker_of(batch).commit)]
        else:
            found = [_known(codec, record, header.base_offset) for record in records_of(batch)]
            if header.is_transactional:
                found = [codec.pending(fact, producer) for fact in found if fact is not None]
        yield header.until_offset, [fact for fact in found if fact is not None]


def _known(codec: FactCodec[FactT], record: Record, base: int) -> FactT:
    """The fact of a record."""
    fact = codec.decode(record.key, record.value)
    if fact is None:
        key = int.from_bytes((record.key or b"")[: codec.version_bytes])
        value = int.from_bytes((record.value or b"")[: codec.version_bytes])
        found = f"{key} with a value of version {value}"
        where = f"batch at offset {base}"
        raise UnknownVersion("a coordinator's record", found, codec.versions, subject=where)
    return fact
