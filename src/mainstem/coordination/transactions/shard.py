"""Shard: the transactional ids of one internal stream.

Every method decides about one id and returns what to store and what to answer; nothing changes
until the fact is replayed. A *spare* producer id is passed with requests that may need a new one;
the decision states whether it was used.

Guarantees: a decided outcome never changes; no partition is added to a transaction whose outcome is
decided; identities of an id only grow (another producer id, or a larger epoch of the same one); a
request that is repeated because its answer got lost gets the same answer.
"""

from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from mainstem.coordination.pattern import compile_pattern
from mainstem.coordination.transactions import rules
from mainstem.coordination.transactions.facts import (
    TransactionFact,
    TransactionRemoved,
    TransactionSaved,
)
from mainstem.coordination.transactions.requests import (
    FIRST_VERSION_WITH_BUMP,
    DescribedTransaction,
    EndRequest,
    InitAnswer,
    InitRequest,
    ListedTransaction,
    TransactionFilter,
)
from mainstem.coordination.transactions.settings import TransactionSettings
from mainstem.coordination.transactions.state import (
    EPOCH_EXHAUSTED,
    NO_EPOCH,
    NO_PRODUCER,
    NO_TIMEOUT_MS,
    NOBODY,
    NOT_STARTED_MS,
    Partition,
    ProducerIdentity,
    Transaction,
    TransactionState,
    bumped,
)
from mainstem.model.errors import ErrorCode, InvalidRequest

State = TransactionState


class TransactionDecision(Struct, frozen=True):
    """State of a transaction after a request, which is stored if ``is_change``.

    ``uses_spare``: it contains the spare producer id. ``is_concurrent``: the caller has to retry
    once the markers that are being written are complete.
    """

    transaction: Transaction
    is_change: bool = True
    uses_spare: bool = False
    is_concurrent: bool = False
    answer: InitAnswer | None = None


class TransactionShard:
    """The transactions of one shard. Only ``replay`` changes them."""

    def __init__(self, settings: TransactionSettings) -> None:
        self._settings = settings
        self._transactions: dict[str, Transaction] = {}
        self._ongoing: dict[str, None] = {}
        self._prepared: dict[str, None] = {}

    def __iter__(self) -> Iterator[Transaction]:
        return iter(self._transactions.values())

    def __len__(self) -> int:
        return len(self._transactions)

    def get(self, transactional_id: str) -> Transaction | None:
        """The transaction of that id, or None."""
        return self._transactions.get(transactional_id)

    def init(self, request: InitRequest, spare_id: int, now_ms: int) -> TransactionDecision:
        """Decide which identity a producer gets; it fences the previous producer of the id."""
        timeout_ms = rules.timeout_of(request, self._settings)
        known = self._transactions.get(request.transactional_id)
        if known is None:
            first = Transaction(
                id=request.transactional_id,
                producer_id=spare_id,
                epoch=0,
                timeout_ms=timeout_ms,
                state=State.EMPTY,
                update_ms=now_ms,
            )
            return TransactionDecision(first, uses_spare=True, answer=InitAnswer(first.client))
        rules.check_expected(known, request.expected)
        if known.state.is_prepared:
            return TransactionDecision(known, is_change=False, is_concurrent=True)
        if known.state is State.ONGOING:
            if request.keep_prepared:
                return _keep(known, request, timeout_ms, spare_id, now_ms)
            # The client retries once the transaction of its predecessor is aborted. A producer that
            # recovers from an error is its own predecessor: its retry must not be fenced.
            keep_epoch = request.expected == known.client
            fenced = _abort(known, spare_id, now_ms, keep_epoch=keep_epoch)
            return replace(fenced, is_concurrent=True)
        return _begin(known, request.expected, timeout_ms, spare_id, now_ms)

    def add(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[Partition],
        now_ms: int,
    ) -> TransactionDecision:
        """Decide to add partitions to the transaction; the first ones start it."""
        known = rules.need(self._transactions, transactional_id)
        rules.check_producer(known, producer)
        if known.state.is_prepared:
            return TransactionDecision(known, is_change=False, is_concurrent=True)
        if known.is_kept:
            raise rules.wrong_state(known, "add partitions: it is prepared")
        if known.state is State.ONGOING and known.partitions.issuperset(partitions):
            return TransactionDecision(known, is_change=False)
        begins = known.state is not State.ONGOING
        after = replace(
            known,
            state=State.ONGOING,
            partitions=known.partitions.union(partitions),
            start_ms=now_ms if begins else known.start_ms,
            update_ms=now_ms,
        )
        return TransactionDecision(after)

    def holds(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Sequence[Partition]
    ) -> list[ErrorCode | None]:
        """For each partition, None if it is in the producer's ongoing transaction."""
        known = rules.need(self._transactions, transactional_id)
        rules.check_producer(known, producer)
        if known.state.is_prepared:
            raise rules.concurrent(known)
        if known.is_kept:
            # A record of the new incarnation would fence the marker, which has the older epoch.
            raise rules.wrong_state(known, "accept records: it is prepared")
        return [
            None if partition in known.partitions else ErrorCode.TRANSACTION_ABORTABLE
            for partition in partitions
        ]

    def end(self, request: EndRequest, spare_id: int, now_ms: int) -> TransactionDecision:
        """Decide the outcome of the ongoing transaction; the answer is ``transaction.client``."""
        known = rules.need(self._transactions, request.transactional_id)
        if request.client_version < FIRST_VERSION_WITH_BUMP:
            rules.check_producer(known, request.producer)
            repeated = known.state is not State.ONGOING
        else:
            repeated = rules.is_repeated_end(known, request.producer)
            if not repeated:
                rules.check_producer(known, request.producer)
        if known.state is State.ONGOING:
            return _prepare(known, request, spare_id, now_ms)
        if repeated:
            return _repeated_end(known, request)
        if known.state.is_prepared:
            return TransactionDecision(known, is_change=False, is_concurrent=True)
        if not request.commit:
            # The client cannot know that nothing has arrived: the abort fences delayed requests.
            started = replace(known, start_ms=now_ms, partitions=frozenset())
            return _prepare(started, request, spare_id, now_ms)
        raise rules.wrong_state(known, "be committed" if request.commit else "be aborted")

    def overdue(self, now_ms: int) -> list[str]:
        """The ids whose transaction has timed out."""
        return [each for each in self._ongoing if self.is_overdue(each, now_ms)]

    def is_overdue(self, transactional_id: str, now_ms: int) -> bool:
        """Whether the transaction of an id has timed out."""
        known = self._transactions.get(transactional_id)
        deadline_ms = None if known is None else known.deadline_ms
        return deadline_ms is not None and deadline_ms <= now_ms

    def time_out(self, transactional_id: str, spare_id: int, now_ms: int) -> TransactionDecision:
        """Decide to abort a transaction that has timed out; its producer may still abort it."""
        known = self._transactions[transactional_id]
        return _abort(known, spare_id, now_ms, keep_epoch=True)

    def complete(self, transactional_id: str, now_ms: int) -> TransactionDecision:
        """Decide to complete a transaction whose markers are all written."""
        known = self._transactions[transactional_id]
        assert known.state.is_prepared, "only a decided transaction can be completed"
        producer = known.client
        is_commit = known.state is State.PREPARE_COMMIT
        after = replace(
            known,
            producer_id=producer.producer_id,
            epoch=producer.epoch,
            next_producer_id=NO_PRODUCER,
            next_epoch=NO_EPOCH,
            state=State.COMPLETE_COMMIT if is_commit else State.COMPLETE_ABORT,
            partitions=frozenset(),
            update_ms=now_ms,
        )
        return TransactionDecision(after)

    def expire(self, now_ms: int) -> list[TransactionFact]:
        """Decide which unused ids have expired."""
        since_ms = now_ms - self._settings.id_expiration_ms
        return [
            TransactionRemoved(each.id)
            for each in self._transactions.values()
            if each.state.is_idle and each.update_ms <= since_ms
        ]

    def prepared(self) -> list[str]:
        """The ids whose markers are being written, or have to be written again after a restart."""
        return list(self._prepared)

    def describe(self, transactional_id: str) -> DescribedTransaction:
        """Describe a transactional id."""
        known = self._transactions.get(transactional_id)
        if known is None:
            raise InvalidRequest(ErrorCode.UNKNOWN_TRANSACTION, subject=transactional_id)
        return DescribedTransaction(
            known.id,
            known.state.label,
            known.timeout_ms,
            known.start_ms,
            known.client,
            sorted(known.partitions),
        )

    def list(self, wanted: TransactionFilter, now_ms: int) -> Sequence[ListedTransaction]:
        """The transactions that match a filter."""
        matches = None if wanted.pattern is None else compile_pattern(wanted.pattern)
        return [
            ListedTransaction(each.id, each.client.producer_id, each.state.label)
            for each in self
            if (not wanted.states or each.state.label in wanted.states)
            and (not wanted.producer_ids or each.client.producer_id in wanted.producer_ids)
            and (wanted.duration_ms < 0 or _lasts_longer(each, wanted.duration_ms, now_ms))
            and (matches is None or matches(each.id))
        ]

    def replay(self, fact: TransactionFact) -> None:
        """Apply a stored fact."""
        if isinstance(fact, TransactionRemoved):
            self._transactions.pop(fact.transactional_id, None)
            self._ongoing.pop(fact.transactional_id, None)
            self._prepared.pop(fact.transactional_id, None)
            return
        after = fact.transaction
        self._transactions[after.id] = after
        for wanted, ids in (
            (after.state is State.ONGOING, self._ongoing),
            (after.state.is_prepared, self._prepared),
        ):
            if wanted:
                ids[after.id] = None
            else:
                ids.pop(after.id, None)


def _prepare(
    known: Transaction, request: EndRequest, spare_id: int, now_ms: int
) -> TransactionDecision:
    """Decide the outcome. The epoch of the markers fences delayed requests."""
    state = State.PREPARE_COMMIT if request.commit else State.PREPARE_ABORT
    decided = replace(known, state=state, update_ms=now_ms, client_version=request.client_version)
    if request.client_version < FIRST_VERSION_WITH_BUMP:
        return TransactionDecision(decided)
    before = known.client
    after = bumped(before, spare_id)
    decided = replace(
        decided,
        epoch=known.epoch + 1,
        previous_producer_id=before.producer_id,
        last_epoch=before.epoch,
    )
    if known.is_kept or after.producer_id != known.producer_id:
        decided = replace(decided, next_producer_id=after.producer_id, next_epoch=after.epoch)
    return TransactionDecision(decided, uses_spare=after.producer_id == spare_id)


def _abort(
    known: Transaction, spare_id: int, now_ms: int, *, keep_epoch: bool
) -> TransactionDecision:
    """Abort without a request of the producer; ``keep_epoch`` lets it abort afterwards."""
    unasked = EndRequest(transactional_id=known.id, producer=known.client, commit=False)
    aborted = _prepare(known, unasked, spare_id, now_ms)
    if keep_epoch:
        return aborted
    unknown = replace(aborted.transaction, previous_producer_id=NO_PRODUCER, last_epoch=NO_EPOCH)
    return replace(aborted, transaction=unknown)


def _begin(
    known: Transaction, expected: ProducerIdentity, timeout_ms: int, spare_id: int, now_ms: int
) -> TransactionDecision:
    """Decide the identity of a producer that takes over an id whose last transaction ended."""
    if expected not in (NOBODY, known.client):
        # Its answer got lost: no other producer came since, or ``before`` would be cleared.
        assert expected == known.before, "others are refused before"
        again = replace(known, timeout_ms=timeout_ms, update_ms=now_ms)
        return TransactionDecision(_emptied(again), answer=InitAnswer(known.client))
    after = bumped(known.client, spare_id)
    recovers = expected != NOBODY
    begun = replace(
        _emptied(known),
        producer_id=after.producer_id,
        epoch=after.epoch,
        timeout_ms=timeout_ms,
        update_ms=now_ms,
        previous_producer_id=known.producer_id if recovers else NO_PRODUCER,
        last_epoch=known.epoch if recovers else NO_EPOCH,
    )
    return TransactionDecision(
        begun, uses_spare=known.epoch >= EPOCH_EXHAUSTED, answer=InitAnswer(begun.client)
    )


def _emptied(known: Transaction) -> Transaction:
    return replace(
        known,
        state=State.EMPTY,
        partitions=frozenset(),
        start_ms=NOT_STARTED_MS,
        client_version=0,
    )


def _keep(
    known: Transaction, request: InitRequest, timeout_ms: int, spare_id: int, now_ms: int
) -> TransactionDecision:
    """Let a later incarnation take over the prepared transaction with a new identity."""
    after = bumped(known.client, spare_id)
    kept = replace(
        known,
        next_producer_id=after.producer_id,
        next_epoch=after.epoch,
        # The transaction stays two-phase, whatever the new incarnation requests.
        timeout_ms=NO_TIMEOUT_MS if known.is_two_phase or request.two_phase else timeout_ms,
        update_ms=now_ms,
    )
    answer = InitAnswer(kept.client, ProducerIdentity(known.producer_id, known.epoch))
    return TransactionDecision(kept, uses_spare=after.producer_id == spare_id, answer=answer)


def _repeated_end(known: Transaction, request: EndRequest) -> TransactionDecision:
    """Grant a repeated request again; refuse the opposite one."""
    was_commit = known.state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)
    if known.state is State.EMPTY or was_commit is not request.commit:
        raise rules.wrong_state(known, "be committed" if request.commit else "be aborted")
    return TransactionDecision(known, is_change=False, is_concurrent=known.state.is_prepared)


def _lasts_longer(known: Transaction, duration_ms: int, now_ms: int) -> bool:
    is_open = known.state is State.ONGOING or known.state.is_prepared
    return is_open and now_ms - known.start_ms > duration_ms


def facts_of(decision: TransactionDecision) -> list[TransactionFact]:
    """The facts that a decision stores."""
    return [TransactionSaved(decision.transaction)] if decision.is_change else []
