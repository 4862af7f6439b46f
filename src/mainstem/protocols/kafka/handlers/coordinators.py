"""FindCoordinator: which node looks after a group."""

from mainstem.model.errors import ErrorCode
from mainstem.protocols.kafka.call import Call, Served
from mainstem.protocols.kafka.errors import kafka_code
from mainstem.wire.kafka.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_GROUP = 0
_TRANSACTION = 1
_FIRST_WITH_KEYS = 4
_UNSPECIFIED = frozenset({"", "0.0.0.0", "::"})  # noqa: S104  # compared with, not bound to
_LOOPBACK = frozenset({"127.0.0.1", "::1"})


def find_coordinator(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """This node coordinates every group it can be asked for."""
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
    if key_type != _GROUP:
        # A refusal that clients give up on at once: one they retry would only hang them.
        kind = "transactions" if key_type == _TRANSACTION else f"coordinators of type {key_type}"
        return Coordinator(
            key=key,
            node_id=-1,
            port=-1,
            error_code=kafka_code(ErrorCode.INVALID_REQUEST),
            error_message=f"This cluster does not serve {kind}.",
        )
    node = call.broker.node
    host, port = _address(call)
    return Coordinator(key=key, node_id=node.id, host=host, port=port, error_message=None)


def _address(call: Call) -> tuple[str, int]:
    """Where this client reaches the node: what it dialled, unless an outer address is set."""
    node, peer = call.broker.node, call.peer
    if node.host in _UNSPECIFIED or peer.dialled_host in _LOOPBACK:
        return peer.dialled_host, peer.dialled_port
    return node.host, node.port


SERVED = {10: Served(find_coordinator, 0, 6)}
