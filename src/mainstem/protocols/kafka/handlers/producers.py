"""InitProducerId: identities for idempotent producers."""

from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.protocols.kafka.call import Call, Served
from mainstem.protocols.kafka.errors import kafka_code
from mainstem.wire.kafka.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)


async def init_producer_id(call: Call, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """A fresh producer id; a producer that comes back gets a new one, as Kafka gives it."""
    if request.transactional_id is not None:
        code = kafka_code(ErrorCode.COORDINATOR_UNAVAILABLE)
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    try:
        producer_id, epoch = await call.broker.producers.new_producer_id()
    except MainstemError as error:
        return InitProducerIdResponse(
            error_code=kafka_code(error), producer_id=-1, producer_epoch=-1
        )
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)


SERVED = {22: Served(init_producer_id, 0, 5)}
