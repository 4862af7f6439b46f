"""The table of all HTTP routes."""

from mainstem.protocols.rest.access import Right
from mainstem.protocols.rest.handlers import groups, ops, peek, produce, topics
from mainstem.protocols.rest.handlers.cluster import CLUSTER_ADDRESSES
from mainstem.protocols.rest.routing.operation import Address, RestOperation
from mainstem.protocols.rest.routing.queue_routes import QUEUE_ADDRESSES
from mainstem.protocols.rest.routing.security_routes import SECURITY_ADDRESSES, SEE_CLUSTER
from mainstem.protocols.rest.schemas.topics_and_groups import (
    BrokerAnswer,
    GroupAnswer,
    GroupDeleted,
    GroupLine,
    MessageAnswer,
    MessageRequest,
    MessagesRequest,
    MessagesStored,
    NewTopicRequest,
    Probe,
    TopicAnswer,
    TopicDeleted,
    TopicLine,
    TopicRequest,
)
from mainstem.security.authorisation.acl import Operation, ResourceType

_FIGURES = {"type": "object", "additionalProperties": {"type": ["number", "string", "boolean"]}}
_HEALTH = {
    "type": "object",
    "required": ["is_healthy", "status", "timestamp"],
    "properties": {
        "is_healthy": {"type": "boolean"},
        "status": {"type": "string"},
        "live": {"type": "boolean"},
        "ready": {"type": "boolean"},
        "components": {"type": "array", "items": {"type": "object"}},
        "timestamp": {"type": "string", "format": "date-time"},
    },
}
_TEXT = {"type": "string"}


def _on_topic(operation: Operation) -> Right:
    return Right(operation, ResourceType.TOPIC, "name")


def _on_group(operation: Operation) -> Right:
    return Right(operation, ResourceType.GROUP, "id")


_READ_MESSAGES = RestOperation(
    handler=peek.peek,
    right=_on_topic(Operation.READ),
    summary="Read messages of one partition.",
    answer=list[MessageAnswer],
    parameters=(peek.PARTITION, peek.OFFSET, peek.FROM_TIMESTAMP, peek.LIMIT, peek.ENCODING),
    refusals=(404, 416),
)
_STORE_MESSAGES = RestOperation(
    handler=produce.produce,
    right=_on_topic(Operation.WRITE),
    summary="Store messages; the response is sent once they are as durable as the topic requires.",
    answer=MessagesStored,
    body=(MessagesRequest, MessageRequest, list[MessageRequest]),
    parameters=(peek.PARTITION, produce.KEY, produce.TIMESTAMP),
    refusals=(403, 404, 408, 413, 415, 504),
)

ADDRESSES: tuple[Address, ...] = (
    Address(
        "/",
        {
            "GET": RestOperation(
                handler=ops.get_index,
                summary="A page of links.",
                answer=_TEXT,
                media_type="text/html",
            )
        },
    ),
    Address(
        "/v1/broker",
        {
            "GET": RestOperation(
                handler=ops.get_broker,
                right=SEE_CLUSTER,
                summary="Describe this node.",
                answer=BrokerAnswer,
            )
        },
    ),
    Address(
        "/v1/topics",
        {
            "GET": RestOperation(
                handler=topics.list_topics,
                summary="List topics.",
                answer=list[TopicLine],
                parameters=(topics.INTERNAL,),
            ),
            "POST": RestOperation(
                handler=topics.create_topic,
                summary="Create a topic; refused if it exists.",
                answer=TopicAnswer,
                status=201,
                body=(NewTopicRequest,),
                refusals=(403, 408, 409, 413, 415),
            ),
        },
    ),
    Address(
        "/v1/topics/{name}",
        {
            "GET": RestOperation(
                handler=topics.get_topic,
                right=_on_topic(Operation.DESCRIBE),
                summary="Describe a topic and its partitions.",
                answer=TopicAnswer,
                refusals=(404,),
            ),
            "PUT": RestOperation(
                handler=topics.put_topic,
                summary="Create a topic (201), or alter an existing one to match the body (200).",
                answer=TopicAnswer,
                body=(TopicRequest,),
                refusals=(403, 408, 409, 413, 415),
            ),
            "DELETE": RestOperation(
                handler=topics.delete_topic,
                right=_on_topic(Operation.DELETE),
                summary="Delete a topic and its messages.",
                answer=TopicDeleted,
                refusals=(403, 404),
            ),
        },
    ),
    Address("/v1/topics/{name}/messages", {"GET": _READ_MESSAGES, "POST": _STORE_MESSAGES}),
    Address(
        "/v1/groups",
        {
            "GET": RestOperation(
                handler=groups.list_groups, summary="List groups.", answer=list[GroupLine]
            )
        },
    ),
    Address(
        "/v1/groups/{id:path}",
        {
            "GET": RestOperation(
                handler=groups.get_group,
                right=_on_group(Operation.DESCRIBE),
                summary="Describe a group: members, committed offsets and lag.",
                answer=GroupAnswer,
                refusals=(404,),
            ),
            "DELETE": RestOperation(
                handler=groups.delete_group,
                right=_on_group(Operation.DELETE),
                summary="Delete an empty group and its committed offsets.",
                answer=GroupDeleted,
                refusals=(404, 409),
            ),
        },
    ),
    *CLUSTER_ADDRESSES,
    *QUEUE_ADDRESSES,
    *SECURITY_ADDRESSES,
    Address(
        "/health",
        {
            "GET": RestOperation(
                handler=ops.get_health,
                summary="Health of the node; 503 if something needs an operator.",
                answer=_HEALTH,
            )
        },
    ),
    Address(
        "/health/live",
        {
            "GET": RestOperation(
                handler=ops.get_live,
                summary="Liveness; 503 if the process should be restarted.",
                answer=Probe,
            )
        },
    ),
    Address(
        "/health/ready",
        {
            "GET": RestOperation(
                handler=ops.get_ready,
                summary="Readiness; 503 if clients should use another node for now.",
                answer=Probe,
            )
        },
    ),
    Address(
        "/metrics",
        {
            "GET": RestOperation(
                handler=ops.get_metrics,
                right=SEE_CLUSTER,
                summary="All metrics in Prometheus' text format.",
                answer=_TEXT,
                media_type="text/plain",
            )
        },
    ),
    Address(
        "/metrics/json",
        {
            "GET": RestOperation(
                handler=ops.get_metrics_json,
                right=SEE_CLUSTER,
                summary="The most important metrics as JSON.",
                answer=_FIGURES,
            )
        },
    ),
)
