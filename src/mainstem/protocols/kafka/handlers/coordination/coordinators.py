"""FindCoordinator: the node that coordinates a group or a transactional id.

That is the writer of the internal topic's partition that the name belongs to. With several nodes
the first request creates the topic.
"""

from collections.abc import Awaitable, Sequence

from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.model.metadata import Node
from mainstem.model.topic_name import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from mainstem.protocols.kafka.advertised_address import reached_at
from mainstem.protocols.kafka.call import ApiHandler, Call
from mainstem.protocols.kafka.errors import kafka_code, kafka_message
from mainstem.security.authorisation.acl import Operation
from mainstem.wire.kafka.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_GROUP = 0
_TRANSACTION = 1
_TOPICS = {_GROUP: GROUP_OFFSETS_TOPIC, _TRANSACTION: TRANSACTION_STATE_TOPIC}
_FIRST_WITH_KEYS = 4


def find_coordinator(
    call: Call, request: FindCoordinatorRequest
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    """The coordinator of each name."""
    topics = call.broker.topics
    internal = _TOPICS.get(request.key_type)
    if internal is not None and topics.by_name(internal) is None and len(topics.nodes()) > 1:
        return _find_after_creation(call, request, internal)
    return _find(call, request)


async def _find_after_creation(
    call: Call, request: FindCoordinatorRequest, internal: str
) -> FindCoordinatorResponse:
    try:
        await call.broker.cluster.ensure_internal(internal)
    except MainstemError as error:
        refused = [_refused(key, error) for key in _keys(call, request)]
        return _response(call, refused)
    return _find(call, request)


def _find(call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    found = [_coordinator(call, key, request.key_type) for key in _keys(call, request)]
    return _response(call, found)


def _keys(call: Call, request: FindCoordinatorRequest) -> Sequence[str]:
    return request.coordinator_keys if call.version >= _FIRST_WITH_KEYS else [request.key]


def _response(call: Call, found: list[Coordinator]) -> FindCoordinatorResponse:
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
        # A fatal error: with a retriable one, clients would retry forever.
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
        return _refused(key, error)
    node = _coordinating(call, key, key_type)
    if node is None:
        return _refused(
            key, Unavailable(ErrorCode.COORDINATOR_UNAVAILABLE, "the coordinator is being elected")
        )
    host, port = reached_at(call, node)
    return Coordinator(key=key, node_id=node.id, host=host, port=port, error_message=None)


def _coordinating(call: Call, key: str, key_type: int) -> Node | None:
    broker = call.broker
    topic = broker.topics.by_name(_TOPICS[key_type])
    if topic is None:
        return broker.node
    kept = broker.groups if key_type == _GROUP else broker.transactions
    writer = topic.streams[kept.coordinator_partition(key)].writer
    return next((node for node in broker.topics.nodes() if node.id == writer), None)


def _refused(key: str, error: MainstemError) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=-1,
        port=-1,
        error_code=kafka_code(error),
        error_message=kafka_message(error),
    )


SERVED = {10: ApiHandler(find_coordinator, 0, 6)}
