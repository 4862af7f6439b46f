"""State of one transactional id: its producer identities and its transaction.

    Empty ─add─▶ Ongoing ─end─▶ PrepareCommit ─all markers─▶ CompleteCommit ─add─▶ Ongoing …
      ▲             └─end, time-out, fence─▶ PrepareAbort ─▶ CompleteAbort ─┘
      └── InitProducerId ──────────────────────────────────────────────────┘

The whole state of an id is one value, and each change stores all of it. It may contain three
producer identities at once:

* ``producer_id``/``epoch`` wrote the records of the transaction, and its markers carry them;
* ``next_producer_id``/``next_epoch``, where set, is what the client uses from now on: after the
  epochs of an id are used up, or while a later incarnation holds a prepared transaction (KIP-939);
* ``previous_producer_id``/``last_epoch`` is what the client used before: a request with it is a
  repetition whose answer got lost.
"""

from enum import IntEnum
from typing import NamedTuple

from msgspec import Struct

Partition = tuple[str, int]

NO_PRODUCER = -1
NO_EPOCH = -1
EPOCH_MAX = 2**15 - 1
# The coordinator must always be able to fence, so clients never get the last epoch.
EPOCH_EXHAUSTED = EPOCH_MAX - 1
# As stored by Kafka: the timeout of transactions that an external coordinator ends (KIP-939).
NO_TIMEOUT_MS = 2**31 - 1
NOT_STARTED_MS = -1


class TransactionState(IntEnum):
    """State of a transaction; the numbers are Kafka's, as stored."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """The name that Kafka's tools print."""
        return _LABELS[self]

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided and markers are being written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """Whether no transaction is open."""
        return self in (
            TransactionState.EMPTY,
            TransactionState.COMPLETE_COMMIT,
            TransactionState.COMPLETE_ABORT,
        )


_LABELS = {
    state: "".join(word.capitalize() for word in state.name.split("_"))
    for state in TransactionState
}
STATE_LABELS = frozenset(_LABELS.values())


class ProducerIdentity(NamedTuple):
    """Identity that a producer sends with every request; a newer epoch fences an older one."""

    producer_id: int
    epoch: int


NOBODY = ProducerIdentity(NO_PRODUCER, NO_EPOCH)


class Transaction(Struct, frozen=True, kw_only=True):
    """The state of a transactional id; see the module docstring."""

    id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    state: TransactionState
    update_ms: int
    start_ms: int = NOT_STARTED_MS
    partitions: frozenset[Partition] = frozenset()
    client_version: int = 0
    previous_producer_id: int = NO_PRODUCER
    last_epoch: int = NO_EPOCH
    next_producer_id: int = NO_PRODUCER
    next_epoch: int = NO_EPOCH

    @property
    def client(self) -> ProducerIdentity:
        """The identity that the client has to use now; once decided, for its next transaction."""
        if self.next_producer_id != NO_PRODUCER:
            # Kafka omits the epoch if it is the first one of a new id.
            return ProducerIdentity(self.next_producer_id, max(self.next_epoch, 0))
        return ProducerIdentity(self.producer_id, self.epoch)

    @property
    def before(self) -> ProducerIdentity:
        """The identity that the client used before the last change of identity."""
        return ProducerIdentity(self.previous_producer_id, self.last_epoch)

    @property
    def is_kept(self) -> bool:
        """Whether a later incarnation holds the prepared transaction of an earlier one."""
        return self.state is TransactionState.ONGOING and self.next_producer_id != NO_PRODUCER

    @property
    def is_two_phase(self) -> bool:
        """Whether an external coordinator ends the transactions, without a timeout."""
        return self.timeout_ms == NO_TIMEOUT_MS

    @property
    def deadline_ms(self) -> int | None:
        """Time at which an ongoing transaction times out; None for a two-phase transaction."""
        if self.state is not TransactionState.ONGOING or self.is_two_phase:
            return None
        return self.start_ms + self.timeout_ms


def bumped(identity: ProducerIdentity, spare_id: int) -> ProducerIdentity:
    """The identity after ``identity``: its next epoch, or a new id when all are used up."""
    if identity.epoch >= EPOCH_EXHAUSTED:
        return ProducerIdentity(spare_id, 0)
    return ProducerIdentity(identity.producer_id, identity.epoch + 1)
