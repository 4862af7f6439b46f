"""Checks of requests for a transactional id, and the coordinator's errors."""

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
                "two-phase transactions are disabled",
                subject=request.transactional_id,
                remedy="set transactions.two_phase_enabled",
            )
        return NO_TIMEOUT_MS
    if not 0 < request.timeout_ms <= settings.timeout_max_ms:
        raise InvalidRequest(
            ErrorCode.INVALID_TXN_TIMEOUT,
            f"transaction timeout {request.timeout_ms} ms is not between 1 and "
            f"{settings.timeout_max_ms} ms",
            subject=request.transactional_id,
        )
    return request.timeout_ms


def need(transactions: Mapping[str, Transaction], transactional_id: str) -> Transaction:
    """The transaction; raises an error that makes a client start again if the id is unknown."""
    known = transactions.get(transactional_id)
    if known is None:
        raise InvalidRequest(
            ErrorCode.INVALID_PRODUCER_MAPPING,
            "unknown transactional id",
            subject=transactional_id,
        )
    return known


def check_expected(known: Transaction, expected: ProducerIdentity) -> None:
    """Refuse a producer that recovers from an error if it was replaced meanwhile."""
    if expected in (NOBODY, known.client):
        return
    # The answer with its new identity got lost, unless that identity has been used.
    if expected == known.before and known.state is not TransactionState.ONGOING:
        return
    raise _fenced(known, expected)


def check_producer(known: Transaction, producer: ProducerIdentity) -> None:
    """Refuse a producer that is not the current owner of the transactional id."""
    if producer.producer_id != known.client.producer_id:
        raise InvalidRequest(
            ErrorCode.INVALID_PRODUCER_MAPPING,
            f"the producer id is {known.client.producer_id}, not {producer.producer_id}",
            subject=known.id,
        )
    if producer.epoch != known.client.epoch:
        raise _fenced(known, producer)


def is_repeated_end(known: Transaction, producer: ProducerIdentity) -> bool:
    """Whether the producer repeats the end of a transaction after which its identity changed."""
    idle = (TransactionState.EMPTY, TransactionState.ONGOING)
    return producer == known.before and known.state not in idle


def concurrent(known: Transaction) -> Unavailable:
    """The error that makes a client retry after a short time."""
    return Unavailable(
        ErrorCode.CONCURRENT_TRANSACTIONS,
        f"markers are being written, state {known.state.label}",
        subject=known.id,
    )


def wrong_state(known: Transaction, what: str) -> InvalidRequest:
    """The error for an operation that the state of the transaction does not allow."""
    return InvalidRequest(
        ErrorCode.INVALID_TXN_STATE,
        f"a transaction in state {known.state.label} cannot {what}",
        subject=known.id,
    )


def _fenced(known: Transaction, producer: ProducerIdentity) -> Fenced:
    return Fenced(
        ErrorCode.FENCED_PRODUCER,
        f"producer {producer.producer_id} epoch {producer.epoch}, the current one is "
        f"{known.client.producer_id} epoch {known.client.epoch}",
        subject=known.id,
    )
