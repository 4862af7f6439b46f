"""Refusals of transactions by the numbers that each version of a request understands."""

from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.protocols.kafka.errors import kafka_code

PRODUCER_FENCED = 90
OPERATION_NOT_ATTEMPTED = 55


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
