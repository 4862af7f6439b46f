"""A shard of transactions, its log and the partitions it marks, in memory and on a virtual clock.

Does what the drivers do, but one step at a time, so that a test may stop it anywhere: a decision
is stored, then each marker is written, then the transaction is completed. ``restart`` discards all
state that is not stored.
"""

from collections.abc import Collection, Sequence

from msgspec import Struct

from mainstem.coordination.transactions import rules
from mainstem.coordination.transactions.facts import (
    TransactionFact,
    decode_transaction,
    encode_transaction,
)
from mainstem.coordination.transactions.requests import EndRequest, InitAnswer, InitRequest
from mainstem.coordination.transactions.settings import TransactionSettings
from mainstem.coordination.transactions.shard import TransactionDecision, TransactionShard, facts_of
from mainstem.coordination.transactions.state import (
    Partition,
    ProducerIdentity,
    Transaction,
    TransactionState,
)
from mainstem.model.errors import ErrorCode, InvalidRequest, Unavailable
from mainstem.model.records.batch import MAGIC, NO_SEQUENCE, TRANSACTIONAL_MASK, BatchHeader
from mainstem.streams.producers.stream_state import StreamState
from mainstem.streams.producers.transaction_markers import TransactionMarker

_EPOCH_MS = 1_700_000_000_000
_FIRST_PRODUCER_ID = 100


class WrittenRecord(Struct):
    """A record of a transaction; ``is_committed`` is None until its marker is written."""

    producer: ProducerIdentity
    note: str
    is_committed: bool | None = None


class SimPartition:
    """One partition with the state of its transactions."""

    def __init__(self) -> None:
        self.state = StreamState()
        self.records: list[WrittenRecord] = []
        self._end = 0

    def write(self, producer: ProducerIdentity, note: str) -> None:
        """Append a record of the producer's transaction."""
        self.state.check_epoch(*producer)
        self.state.replay(_header(producer, self._end), None)
        self.records.append(WrittenRecord(producer, note))
        self._end += 1

    def mark(self, producer: ProducerIdentity, marker: TransactionMarker) -> None:
        """Append a marker, which decides the producer's records since its last marker."""
        self.state.check_epoch(*producer)
        self.state.mark(*producer, marker, offset=self._end, now_ms=0)
        self._end += 1
        for record in self.records:
            if record.producer.producer_id == producer.producer_id and record.is_committed is None:
                record.is_committed = marker.commit

    def has_open(self, producer: ProducerIdentity) -> bool:
        """Whether the producer's transaction already has records in this partition."""
        is_open = producer.producer_id in self.state.transactions.ongoing
        return is_open and self.state.producers.epoch_of(producer.producer_id) == producer.epoch


class TransactionSimulator:
    """One shard; ``stored`` holds all facts in order, ``partitions`` the written records."""

    def __init__(self, settings: TransactionSettings) -> None:
        self.settings = settings
        self.now_ms = _EPOCH_MS
        self.stored: list[TransactionFact] = []
        self.is_full = False
        self.partitions: dict[Partition, SimPartition] = {}
        self.unmarked: dict[str, list[Partition]] = {}
        self._spare_id = _FIRST_PRODUCER_ID
        self.shard = TransactionShard(settings)

    def init(self, request: InitRequest) -> InitAnswer:
        """Send InitProducerId."""
        decision = self._carry_out(self.shard.init(request, self._spare_id, self.now_ms))
        assert decision.answer is not None
        return decision.answer

    def add(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Collection[Partition]
    ) -> None:
        """Add partitions to the transaction."""
        self._carry_out(self.shard.add(transactional_id, producer, partitions, self.now_ms))

    def write(
        self, transactional_id: str, producer: ProducerIdentity, partition: Partition, *, adds: bool
    ) -> None:
        """Write a record of a producer; for newer clients this also adds the partition."""
        place = self.partitions.setdefault(partition, SimPartition())
        if not place.has_open(producer):
            if adds:
                self.add(transactional_id, producer, [partition])
            [refusal] = self.shard.holds(transactional_id, producer, [partition])
            if refusal is not None:
                raise InvalidRequest(refusal, subject=transactional_id)
        place.write(producer, transactional_id)

    def end(self, request: EndRequest) -> ProducerIdentity:
        """Send EndTxn."""
        return self._carry_out(
            self.shard.end(request, self._spare_id, self.now_ms)
        ).transaction.client

    def mark(self, transactional_id: str, partition: Partition) -> None:
        """Write one marker of a decided transaction; the last one completes it."""
        decided = self.known(transactional_id)
        marker = TransactionMarker(decided.state is TransactionState.PREPARE_COMMIT, 0)
        producer = ProducerIdentity(decided.producer_id, decided.epoch)
        self.partitions.setdefault(partition, SimPartition()).mark(producer, marker)
        self.unmarked[transactional_id].remove(partition)

    def complete(self, transactional_id: str) -> None:
        """Complete a transaction whose markers are all written."""
        assert not self.unmarked[transactional_id]
        self._store(facts_of(self.shard.complete(transactional_id, self.now_ms)))
        del self.unmarked[transactional_id]

    def settle(self) -> None:
        """Write all outstanding markers."""
        for transactional_id in list(self.unmarked):
            for partition in list(self.unmarked[transactional_id]):
                self.mark(transactional_id, partition)
            self.complete(transactional_id)

    def advance(self, by_ms: int) -> list[str]:
        """Advance the virtual time; returns the ids whose transaction timed out."""
        self.now_ms += by_ms
        overdue = self.shard.overdue(self.now_ms)
        if self.is_full:
            return []
        for each in overdue:
            self._carry_out(self.shard.time_out(each, self._spare_id, self.now_ms))
        return overdue

    def expire(self) -> int:
        """Delete expired ids; returns how many."""
        facts = self.shard.expire(self.now_ms)
        self._store(facts)
        return len(facts)

    def restart(self) -> None:
        """Discard everything that is not stored, and load the rest; markers are written again."""
        self.shard = self.rebuilt()
        self.unmarked = {}
        for each in self.shard.prepared():
            self.unmarked[each] = sorted(self.known(each).partitions)

    def rebuilt(self) -> TransactionShard:
        """A new shard, loaded from the stored facts only."""
        shard = TransactionShard(self.settings)
        for fact in self.stored:
            shard.replay(fact)
        return shard

    def known(self, transactional_id: str) -> Transaction:
        """The state of an id."""
        found = self.shard.get(transactional_id)
        assert found is not None
        return found

    def _carry_out(self, decision: TransactionDecision) -> TransactionDecision:
        if decision.is_change:
            self._store(facts_of(decision))
        if decision.uses_spare:
            self._spare_id += 1
        after = decision.transaction
        if decision.is_change and after.state.is_prepared:
            self.unmarked[after.id] = sorted(after.partitions)
        if decision.is_concurrent:
            raise rules.concurrent(after)
        return decision

    def _store(self, facts: Sequence[TransactionFact]) -> None:
        if self.is_full and facts:
            raise Unavailable(ErrorCode.COORDINATOR_UNAVAILABLE, "the disk is full")
        for fact in facts:
            stored = decode_transaction(*encode_transaction(fact))
            assert stored == fact, "facts survive their encoding"
            self.stored.append(stored)
            self.shard.replay(stored)


def _header(producer: ProducerIdentity, offset: int) -> BatchHeader:
    return BatchHeader(
        base_offset=offset,
        length=0,
        leader_epoch=0,
        magic=MAGIC,
        crc=0,
        attributes=TRANSACTIONAL_MASK,
        last_offset_delta=0,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=NO_SEQUENCE,
        record_count=1,
    )
