"""Positions that count once the transaction they were committed in commits.

They are stored like any position, in batches of the transaction's producer, and wait here for its
marker. Until then the partition has no stable position. A position that was committed without a
transaction, or removed, after a pending one was stored is newer: the pending one never takes effect
then, but the partition stays unstable until the outcome is known.
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
    """A position was committed within a transaction of ``producer``."""

    producer: ProducerIdentity
    committed: OffsetCommitted


class TransactionEnded(Struct, frozen=True):
    """A marker of ``producer`` was written to the stream."""

    producer: ProducerIdentity
    commit: bool


GroupFact = Fact | OffsetPending | TransactionEnded


class GroupCodec:
    """The facts of groups and positions as records of `__consumer_offsets`."""

    version_bytes = SHORT.size
    versions = facts.VERSIONS

    def encode(self, fact: GroupFact) -> tuple[bytes, bytes | None]:
        """Key and value of the record that keeps ``fact``; a marker is no such record."""
        assert not isinstance(fact, TransactionEnded), "markers are written by the stream"
        return facts.encode(fact.committed if isinstance(fact, OffsetPending) else fact)

    def decode(self, key: bytes | None, value: bytes | None) -> GroupFact | None:
        """The fact in a record, or None for a kind or version that is not known."""
        return facts.decode(key, value)

    def producer_of(self, fact: GroupFact) -> ProducerIdentity | None:
        """Whose transaction the fact waits for, if it does."""
        return fact.producer if isinstance(fact, OffsetPending) else None

    def pending(self, fact: GroupFact, producer: ProducerIdentity) -> GroupFact | None:
        """Only positions are committed within transactions; nothing else is taken from there."""
        return OffsetPending(producer, fact) if isinstance(fact, OffsetCommitted) else None

    def ended(self, producer: ProducerIdentity, *, commit: bool) -> GroupFact | None:
        """The fact that a transaction has ended."""
        return TransactionEnded(producer, commit)


GROUP_CODEC: FactCodec[GroupFact] = GroupCodec()


class PendingOffsets:
    """The pending positions of one shard, by producer and by place.

    Of several transactions that commit a position for one place, the one that stored it last wins,
    whichever ends first.
    """

    def __init__(self) -> None:
        self._stored = 0
        # With the number of its storing; without a position where a newer one has overtaken it.
        self._by_producer: dict[int, dict[OffsetKey, tuple[int, OffsetCommitted | None]]] = {}
        self._producers: dict[str, dict[tuple[str, int], set[int]]] = {}

    def add(self, producer_id: int, committed: OffsetCommitted) -> None:
        """A position waits for the producer's transaction; its last one counts."""
        place = (committed.group_id, committed.topic, committed.partition)
        self._stored += 1
        self._by_producer.setdefault(producer_id, {})[place] = (self._stored, committed)
        places = self._producers.setdefault(committed.group_id, {})
        places.setdefault(place[1:], set()).add(producer_id)

    def end(self, producer_id: int, *, commit: bool) -> list[OffsetCommitted]:
        """The transaction has ended; the positions that now count."""
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
        """Something newer than the pending positions stored ``before`` (all) counts here."""
        place = (group_id, topic, partition)
        for producer_id in self._producers.get(group_id, {}).get((topic, partition), ()):
            stored, _ = self._by_producer[producer_id][place]
            if before is None or stored < before:
                self._by_producer[producer_id][place] = (stored, None)

    def is_open(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether some transaction may still change the position."""
        return (topic, partition) in self._producers.get(group_id, {})

    def has(self, group_id: str) -> bool:
        """Whether some transaction may still change positions of the group."""
        return group_id in self._producers

    def groups(self) -> Iterable[str]:
        """Every group with a position that waits."""
        return self._producers.keys()

    def places(self, group_id: str) -> Iterable[tuple[str, int]]:
        """Where positions of a group wait."""
        return self._producers.get(group_id, {}).keys()

    def _forget(self, producer_id: int, place: OffsetKey) -> None:
        group_id, topic, partition = place
        places = self._producers[group_id]
        places[topic, partition].discard(producer_id)
        if not places[topic, partition]:
            del places[topic, partition]
        if not places:
            del self._producers[group_id]
