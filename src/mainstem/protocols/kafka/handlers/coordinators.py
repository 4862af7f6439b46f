"""FindCoordinator: which node looks after a group or a transactional id."""

from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.protocols.kafka.addresses import reached_at
from mainstem.protocols.kafka.call import Call, Served
from mainstem.protocols.kafka.errors import kafka_code, kafka_message
from mainstem.security.acl import Operation
from mainstem.wire.kafka.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_GROUP = 0
_TRANSACTION = 1
_FIRST_WITH_KEYS = 4


def find_coordinator(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """This node coordinates every group and every transaction it can be asked for."""
    keys = request.coordinator_keys if call.version >= _FIRST_WITH_KEYS else [request.key]
    found = [_coordinator(call, key, request.key_type) for key in keys]
    if call.version >= _FIRST_WITH_KEYS:
        return FindCoordinatorResponse(coordinators=found)
    [one] = found
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _coordinator(call: Call, key: str, key_type: int) -> Coordinator:
    if key_type not in (_GROUP, _TRANSACTION):
        # A refusal that clients give up on at once: one they retry would only hang them.
        return Coordinator(
            key=key,
            node_id=-1,
            port=-1,
            error_code=kafka_code(ErrorCode.INVALID_REQUEST),
            error_message=f"This cluster does not serve coordinators of type {key_type}.",
        )
    try:
        if key_type == _GROUP:
            call.need_group(Operation.DESCRIBE, key)
        else:
            call.need_transaction(Operation.DESCRIBE, key)
    except MainstemError as error:
        return Coordinator(
            key=key,
            node_id=-1,
            port=-1,
            error_code=kafka_code(error),
            error_message=kafka_message(error),
        )
    node = call.broker.node
    host, port = reached_at(call, node)
    return Coordinator(key=key, node_id=node.id, host=host, port=port, error_message=None)


SERVED = {10: Served(find_coordinator, 0, 6)}
