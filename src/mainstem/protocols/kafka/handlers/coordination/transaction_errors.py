"""Kafka error codes of transactions, by the version of the request."""

from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.protocols.kafka.errors import kafka_code

PRODUCER_FENCED = 90
OPERATION_NOT_ATTEMPTED = 55

_PRODUCE_WITH_ABORTABLE = 11
_PRODUCE_THAT_ADDS = 12
_PASSING = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOADING,
        ErrorCode.COORDINATOR_UNAVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def transaction_code(
    error: MainstemError | ErrorCode | None, *, fenced: bool = False, abortable: bool = True
) -> int:
    """The Kafka code of an error.

    ``fenced``: the client knows PRODUCER_FENCED, which is fatal, besides the older
    INVALID_PRODUCER_EPOCH; ``abortable``: it knows TRANSACTION_ABORTABLE (KIP-1050).
    """
    code = error.code if isinstance(error, MainstemError) else error
    if code is ErrorCode.FENCED_PRODUCER and fenced:
        return PRODUCER_FENCED
    if code is ErrorCode.TRANSACTION_ABORTABLE and not abortable:
        return kafka_code(ErrorCode.INVALID_TXN_STATE)
    return kafka_code(code)


def produce_refusal(code: ErrorCode | None, version: int) -> ErrorCode | None:
    """The error of a produce request whose transaction the coordinator refuses.

    Clients retry a produce request only after errors that they know as retriable;
    NOT_ENOUGH_REPLICAS is retriable for all of them, and causes no search for another leader.
    """
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _PRODUCE_WITH_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and version >= _PRODUCE_THAT_ADDS:
        return code
    return ErrorCode.NOT_ENOUGH_REPLICAS if code in _PASSING else code
