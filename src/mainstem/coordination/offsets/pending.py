"""Transactional offset commits, which take effect once their transaction commits.

They are stored like any committed offset, in batches of the transaction's producer, and stay
pending until its marker. Until then the partition has no stable offset. An offset that was
committed without a transaction, or deleted, after a pending one was stored is newer: the pending
one then never takes effect, but the partition stays unstable until the outcome is known.
"""

from collections.abc import Iterable

from msgspec import Struct

from mainstem.coordination.groups import facts
from mainstem.coordination.groups.facts import Fact, OffsetCommitted
from mainstem.coordination.shards.fact_log import FactCodec
from mainstem.coordination.shards.primitive_types import SHORT
from mainstem.coordination.transactions.state import ProducerIdentity

OffsetKey = tuple[str, str, int]  # group, topic, partition


class OffsetPending(Struct, frozen=True):
    """An offset was committed within a transaction of ``producer``."""

    producer: ProducerIdentity
    committed: OffsetCommitted


class TransactionEnded(Struct, frozen=True):
    """A marker of ``producer`` was written to the stream."""

    producer: ProducerIdentity
    commit: bool


GroupFact = Fact | OffsetPending | TransactionEnded


class GroupCodec:
    """The facts of groups and offsets as records of `__consumer_offsets`."""

    version_bytes = SHORT.size
    versions = facts.VERSIONS

    def encode(self, fact: GroupFact) -> tuple[bytes, bytes | None]:
        """Encode ``fact`` as key and value of a record; markers cannot be encoded."""
        assert not isinstance(fact, TransactionEnded), "markers are written by the stream"
        return facts.encode(fact.committed if isinstance(fact, OffsetPending) else fact)

    def decode(self, key: bytes | None, value: bytes | None) -> GroupFact | None:
        """Decode a record; None for an unknown type or version."""
        return facts.decode(key, value)

    def producer_of(self, fact: GroupFact) -> ProducerIdentity | None:
        """The producer whose transaction the fact waits for, or None."""
        return fact.producer if isinstance(fact, OffsetPending) else None

    def pending(self, fact: GroupFact, producer: ProducerIdentity) -> GroupFact | None:
        """The offset commit as a pending fact; None for facts that are not transactional."""
        return OffsetPending(producer, fact) if isinstance(fact, OffsetCommitted) else None

    def ended(self, producer: ProducerIdentity, *, commit: bool) -> GroupFact | None:
        """The fact that a transaction ended."""
        return TransactionEnded(producer, commit)


GROUP_CODEC: FactCodec[GroupFact] = GroupCodec()


class PendingOffsets:
    """The pending offsets of one shard, by producer and by partition.

    If several transactions commit an offset for one partition, the one that stored it last wins,
    in whatever order they end.
    """

    def __init__(self) -> None:
        self._stored = 0
        # With its sequence number; without an offset where a newer commit has replaced it.
        self._by_producer: dict[int, dict[OffsetKey, tuple[int, OffsetCommitted | None]]] = {}
        self._producers: dict[str, dict[tuple[str, int], set[int]]] = {}

    def add(self, producer_id: int, committed: OffsetCommitted) -> None:
        """Add an offset of the producer's transaction; its last one for a partition wins."""
        place = (committed.group_id, committed.topic, committed.partition)
        self._stored += 1
        self._by_producer.setdefault(producer_id, {})[place] = (self._stored, committed)
        places = self._producers.setdefault(committed.group_id, {})
        places.setdefault(place[1:], set()).add(producer_id)

    def end(self, producer_id: int, *, commit: bool) -> list[OffsetCommitted]:
        """End the transaction; returns the offsets that take effect."""
        counting = []
        for place, (stored, committed) in self._by_producer.pop(producer_id, {}).items():
            self._forget(producer_id, place)
            if commit and committed is not None:
                counting.append(committed)
                self.overtake(*place, before=stored)
        return counting

    def overtake(
        self, group_id: str, topic: str, partition: int, *, before: int | None = None
    ) -> None:
        """Discard pending offsets stored ``before`` (None: all); a newer commit replaces them."""
        place = (group_id, topic, partition)
        for producer_id in self._producers.get(group_id, {}).get((topic, partition), ()):
            stored, _ = self._by_producer[producer_id][place]
            if before is None or stored < before:
                self._by_producer[producer_id][place] = (stored, None)

    def is_open(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction may still change the offset."""
        return (topic, partition) in self._producers.get(group_id, {})

    def has(self, group_id: str) -> bool:
        """Whether an open transaction may still change offsets of the group."""
        return group_id in self._producers

    def groups(self) -> Iterable[str]:
        """Every group with a pending offset."""
        return self._producers.keys()

    def places(self, group_id: str) -> Iterable[tuple[str, int]]:
        """The partitions with pending offsets of a group."""
        return self._producers.get(group_id, {}).keys()

    def _forget(self, producer_id: int, place: OffsetKey) -> None:
        group_id, topic, partition = place
        places = self._producers[group_id]
        places[topic, partition].discard(producer_id)
        if not places[topic, partition]:
            del places[topic, partition]
        if not places:
            del self._producers[group_id]
