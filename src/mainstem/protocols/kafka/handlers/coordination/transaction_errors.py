"""Refusals of transactions by the numbers that each version of a request understands."""

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
    """The number of a refusal.

    ``fenced`` says that the client knows PRODUCER_FENCED, which ends it at once, beside the older
    INVALID_PRODUCER_EPOCH; ``abortable`` that it knows TRANSACTION_ABORTABLE (KIP-1050).
    """
    code = error.code if isinstance(error, MainstemError) else error
    if code is ErrorCode.FENCED_PRODUCER and fenced:
        return PRODUCER_FENCED
    if code is ErrorCode.TRANSACTION_ABORTABLE and not abortable:
        return kafka_code(ErrorCode.INVALID_TXN_STATE)
    return kafka_code(code)


def produce_refusal(code: ErrorCode | None, version: int) -> ErrorCode | None:
    """What a producer is told when the coordinator does not let its batch begin or go on.

    Clients retry a produce request only for reasons that they know to be passing ones; a writer
    without enough copies is such a reason for all of them, and makes none look for another writer.
    """
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _PRODUCE_WITH_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and version >= _PRODUCE_THAT_ADDS:
        return code
    return ErrorCode.NOT_ENOUGH_REPLICAS if code in _PASSING else code
