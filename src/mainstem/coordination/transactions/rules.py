"""Who may do what with a transactional id: the checks of the coordinator, and its refusals."""

from collections.abc import Mapping

from mainstem.coordination.transactions.requests import InitRequest
from mainstem.coordination.transactions.settings import TransactionSettings
from mainstem.coordination.transactions.state import (
    NO_TIMEOUT_MS,
    NOBODY,
    ProducerIdentity,
    Transaction,
    TransactionState,
)
from mainstem.model.errors import ErrorCode, Fenced, InvalidRequest, Unavailable


def timeout_of(request: InitRequest, settings: TransactionSettings) -> int:
    """How long transactions of the producer may be open."""
    if request.two_phase:
        if not settings.two_phase_enabled:
            raise InvalidRequest(
                ErrorCode.TRANSACTIONAL_ID_NOT_AUTHORIZED,
                "two-phase transactions are switched off",
                subject=request.transactional_id,
                remedy="set transactions.two_phase_enabled",
            )
        return NO_TIMEOUT_MS
    if not 0 < request.timeout_ms <= settings.timeout_max_ms:
        raise InvalidRequest(
            ErrorCode.INVALID_TXN_TIMEOUT,
            f"a time-out of {request.timeout_ms} ms where 1 to {settings.timeout_max_ms} are "
            "allowed",
            subject=request.transactional_id,
        )
    return request.timeout_ms


def need(transactions: Mapping[str, Transaction], transactional_id: str) -> Transaction:
    """The transaction, or the refusal that makes a client begin anew."""
    known = transactions.get(transactional_id)
    if known is None:
        raise InvalidRequest(
            ErrorCode.INVALID_PRODUCER_MAPPING,
            "no producer has this transactional id",
            subject=transactional_id,
        )
    return known


def check_expected(known: Transaction, expected: ProducerIdentity) -> None:
    """A producer that comes back after an error must not have been replaced meanwhile."""
    if expected in (NOBODY, known.client):
        return
    # The answer that told it of its new identity got lost, unless that identity has been used.
    if expected == known.before and known.state is not TransactionState.ONGOING:
        return
    raise _fenced(known, expected)


def check_producer(known: Transaction, producer: ProducerIdentity) -> None:
    """The one who calls must be the one who was given the id last."""
    if producer.producer_id != known.client.producer_id:
        raise InvalidRequest(
            ErrorCode.INVALID_PRODUCER_MAPPING,
            f"producer {producer.producer_id} does not have this id, {known.client.producer_id} "
            "does",
            subject=known.id,
        )
    if producer.epoch != known.client.epoch:
        raise _fenced(known, producer)


def is_repeated_end(known: Transaction, producer: ProducerIdentity) -> bool:
    """Whether the producer shows the identity that a transaction which it ended had taken away."""
    idle = (TransactionState.EMPTY, TransactionState.ONGOING)
    return producer == known.before and known.state not in idle


def concurrent(known: Transaction) -> Unavailable:
    """The refusal that makes a client come again a moment later."""
    return Unavailable(
        ErrorCode.CONCURRENT_TRANSACTIONS,
        f"markers are being written, state {known.state.label}",
        subject=known.id,
    )


def wrong_state(known: Transaction, what: str) -> InvalidRequest:
    """The refusal of something that cannot be done from where the transaction stands."""
    return InvalidRequest(
        ErrorCode.INVALID_TXN_STATE,
        f"a transaction in state {known.state.label} cannot {what}",
        subject=known.id,
    )


def _fenced(known: Transaction, producer: ProducerIdentity) -> Fenced:
    return Fenced(
        ErrorCode.FENCED_PRODUCER,
        f"producer {producer.producer_id} epoch {producer.epoch}, the present one is "
        f"{known.client.producer_id} epoch {known.client.epoch}",
        subject=known.id,
    )
