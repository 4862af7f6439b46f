"""InitProducerId: producer ids and epochs of idempotent and transactional producers."""

from mainstem.broker.api.transactions import NOBODY, InitAnswer, InitRequest, ProducerIdentity
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.protocols.kafka.call import ApiHandler, Call
from mainstem.protocols.kafka.handlers.coordination.transaction_errors import transaction_code
from mainstem.security.authorisation.acl import Operation, ResourceType
from mainstem.wire.kafka.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

_FIRST_WITH_FENCED = 4


async def init_producer_id(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Assign a producer id and epoch; without a transactional id always a new id."""
    try:
        answer = await _identity(call, request)
    except MainstemError as error:
        code = transaction_code(error, fenced=call.version >= _FIRST_WITH_FENCED)
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    return InitProducerIdResponse(
        producer_id=answer.producer.producer_id,
        producer_epoch=answer.producer.epoch,
        ongoing_txn_producer_id=answer.ongoing.producer_id,
        ongoing_txn_producer_epoch=answer.ongoing.epoch,
    )


async def _identity(call: Call, request: InitProducerIdRequest) -> InitAnswer:
    expected = ProducerIdentity(request.producer_id, request.producer_epoch)
    if (expected.producer_id < 0) is not (expected.epoch < 0):
        raise InvalidRequest(ErrorCode.INVALID_REQUEST, "a producer id must be sent with its epoch")
    if request.transactional_id is None:
        # A client that may write to any topic may write idempotently (KIP-679).
        if not call.peer.rights.may_somewhere(Operation.WRITE, ResourceType.TOPIC):
            call.need_cluster(Operation.IDEMPOTENT_WRITE)
        fresh, epoch = await call.broker.producers.new_producer_id()
        return InitAnswer(ProducerIdentity(fresh, epoch))
    call.need_transaction(Operation.WRITE, request.transactional_id)
    if request.enable2_pc:
        call.need_transaction(Operation.TWO_PHASE_COMMIT, request.transactional_id)
    return await call.broker.transactions.init(
        InitRequest(
            transactional_id=request.transactional_id,
            timeout_ms=request.transaction_timeout_ms,
            expected=NOBODY if expected.producer_id < 0 else expected,
            two_phase=request.enable2_pc,
            keep_prepared=request.keep_prepared_txn,
        )
    )


SERVED = {22: ApiHandler(init_producer_id, 0, 6)}
