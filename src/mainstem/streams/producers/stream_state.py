"""State of a stream beyond its records: its producers and their transactions, at one offset.

The state can be saved and restored, which is how a range opens and how a restart
continues; in between, batch headers (and markers) replayed in order give the same state.
"""

import msgspec
from msgspec import Struct

from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.model.errors import Corrupt, ErrorCode, Fenced, InvalidRequest
from mainstem.model.records.batch import NO_SEQUENCE, BatchHeader
from mainstem.streams.producers.sequences import ProducerSnapshot, ProducerStates
from mainstem.streams.producers.transaction_markers import TransactionMarker
from mainstem.streams.producers.transactions import StreamTransactions, TransactionsSnapshot


class DescribedProducer(Struct, frozen=True):
    """A producer as an administrator sees it; -1 stands for a missing value."""

    producer_id: int
    epoch: int
    last_sequence: int
    seen_ms: int
    coordinator_epoch: int
    transaction_start: int


class _Snapshot(Struct, array_like=True):
    producers: list[ProducerSnapshot]
    transactions: TransactionsSnapshot


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Snapshot)


class StreamState:
    """Producers and transactions of one stream."""

    __slots__ = ("producers", "transactions")

    def __init__(self) -> None:
        self.producers = ProducerStates()
        self.transactions = StreamTransactions()

    def join(self, producer_id: int, base: int, *, transactional: bool, verified: bool) -> None:
        """A batch at ``base`` starts or continues a transaction; refuses one that may not."""
        ongoing = producer_id in self.transactions.ongoing
        if ongoing and not transactional:
            raise InvalidRequest(
                ErrorCode.INVALID_TXN_STATE,
                "a plain batch from a producer with an open transaction",
                subject=f"producer {producer_id}",
            )
        if transactional and not ongoing and not verified:
            raise InvalidRequest(
                ErrorCode.INVALID_TXN_STATE,
                "the partition was not added to the transaction",
                subject=f"producer {producer_id}",
            )
        if transactional and not ongoing:
            self.transactions.begin(producer_id, base)

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """Refuse what a coordinator writes for a producer that has been fenced meanwhile."""
        current = self.producers.epoch_of(producer_id)
        if epoch < current:
            raise Fenced(
                ErrorCode.FENCED_PRODUCER,
                f"epoch {epoch} is older than {current}",
                subject=f"producer {producer_id}",
            )

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int) -> None:
        """Refuse a marker for a fenced producer, or of a coordinator that was replaced.

        A producer may keep its epoch from one transaction to the next: a late marker of an older
        coordinator would end the wrong one.
        """
        self.check_epoch(producer_id, epoch)
        marked_by = self.producers.coordinator_epoch_of(producer_id)
        if epoch == self.producers.epoch_of(producer_id) and coordinator_epoch < marked_by:
            raise Fenced(
                ErrorCode.FENCED_COORDINATOR,
                f"the coordinator of epoch {coordinator_epoch} was replaced by that of {marked_by}",
                subject=f"producer {producer_id}",
            )

    def mark(
        self, producer_id: int, epoch: int, marker: TransactionMarker, *, offset: int, now_ms: int
    ) -> None:
        """A marker was written at ``offset``."""
        self.producers.marked(producer_id, epoch, marker.coordinator_epoch, now_ms)
        self.transactions.end(producer_id, offset, commit=marker.commit)

    def replay(self, header: BatchHeader, marker: TransactionMarker | None) -> None:
        """Apply a stored batch; ``marker`` is given for control batches."""
        if header.producer_id < 0:
            return
        if marker is not None:
            self.mark(
                header.producer_id,
                header.producer_epoch,
                marker,
                offset=header.base_offset,
                now_ms=header.max_timestamp,
            )
            return
        if header.base_sequence == NO_SEQUENCE:
            self.producers.seen(header.producer_id, header.producer_epoch, header.max_timestamp)
        else:
            self.producers.record(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.last_offset_delta + 1,
                header.base_offset,
                header.max_timestamp,
            )
        if header.is_transactional and header.producer_id not in self.transactions.ongoing:
            self.transactions.begin(header.producer_id, header.base_offset)

    def forget_from(self, offset: int) -> None:
        """Batches at or above ``offset`` could not be written."""
        self.producers.forget_from(offset)
        self.transactions.forget_from(offset)

    def expire(self, now_ms: int, idle_ms: int) -> int:
        """Forget producers without an open transaction that were idle for longer; how many."""
        return self.producers.expire(now_ms, idle_ms, keep=self.transactions.ongoing.keys())

    def described(self) -> list[DescribedProducer]:
        """Every producer that is remembered."""
        ongoing = self.transactions.ongoing
        return [
            DescribedProducer(
                key,
                producer.epoch,
                producer.batches[-1][1] if producer.batches else NO_SEQUENCE,
                producer.last_timestamp,
                producer.coordinator_epoch,
                ongoing.get(key, -1),
            )
            for key, producer in self.producers.active()
        ]

    def snapshot(self) -> bytes:
        """The whole state, for ``restore``."""
        return _encoder.encode(_Snapshot(self.producers.snapshot(), self.transactions.snapshot()))

    @classmethod
    def restore(cls, data: bytes) -> "StreamState":
        """The state that ``snapshot`` wrote; empty bytes are an empty state."""
        state = cls()
        if not data:
            return state
        try:
            found = _decoder.decode(data)
        except DECODE_ERRORS as error:
            raise Corrupt(f"the state of the stream cannot be read: {error}") from error
        state.producers = ProducerStates.restore(found.producers)
        state.transactions = StreamTransactions.restore(found.transactions)
        return state
