"""The routes for queues, exchanges and bindings."""

from mainstem.protocols.rest.handlers import exchanges, queues
from mainstem.protocols.rest.queue_access import NAMESPACE
from mainstem.protocols.rest.routing.operation import Address, RestOperation
from mainstem.protocols.rest.schemas.queues import (
    Accepted,
    BindingBody,
    Counted,
    ExchangeAnswer,
    ExchangeDeleted,
    ExchangeRequest,
    MoveRequest,
    QueueAnswer,
    QueueDeleted,
    QueuedMessage,
    QueueRequest,
    TakeRequest,
)
from mainstem.protocols.rest.schemas.topics_and_groups import MessageRequest, MessagesRequest

_BODY = (403, 404, 408, 409, 413, 415)
_MESSAGES = (MessagesRequest, MessageRequest, list[MessageRequest])

QUEUE_ADDRESSES: tuple[Address, ...] = (
    Address(
        "/v1/queues",
        {
            "GET": RestOperation(
                handler=queues.list_queues,
                summary="List queues of a namespace.",
                answer=list[QueueAnswer],
                parameters=(NAMESPACE,),
            )
        },
    ),
    Address(
        "/v1/queues/{name:path}/messages",
        {
            "GET": RestOperation(
                handler=queues.browse_queue,
                summary="Browse messages of a queue without consuming them.",
                answer=list[QueuedMessage],
                parameters=(NAMESPACE, queues.START, queues.LIMIT),
                refusals=(403, 404),
            ),
            "POST": RestOperation(
                handler=exchanges.publish_to_queue,
                summary="Publish to a queue; the response is sent once the message is stored.",
                answer=Accepted,
                body=_MESSAGES,
                parameters=(NAMESPACE,),
                refusals=_BODY,
            ),
        },
    ),
    Address(
        "/v1/queues/{name:path}/take",
        {
            "POST": RestOperation(
                handler=queues.take_messages,
                summary="Consume messages of a queue with automatic acknowledgement.",
                answer=list[QueuedMessage],
                body=(TakeRequest,),
                parameters=(NAMESPACE,),
                refusals=_BODY,
            )
        },
    ),
    Address(
        "/v1/queues/{name:path}/purge",
        {
            "POST": RestOperation(
                handler=queues.purge_queue,
                summary="Purge a queue: delete all messages except unsettled deliveries.",
                answer=Counted,
                parameters=(NAMESPACE,),
                refusals=(403, 404),
            )
        },
    ),
    Address(
        "/v1/queues/{name:path}/move",
        {
            "POST": RestOperation(
                handler=queues.move_messages,
                summary="Move messages to another queue, or dead letters back to their origin.",
                answer=Counted,
                body=(MoveRequest,),
                parameters=(NAMESPACE,),
                refusals=_BODY,
            )
        },
    ),
    Address(
        "/v1/queues/{name:path}",
        {
            "GET": RestOperation(
                handler=queues.get_queue,
                summary="Describe a queue.",
                answer=QueueAnswer,
                parameters=(NAMESPACE,),
                refusals=(403, 404),
            ),
            "PUT": RestOperation(
                handler=queues.put_queue,
                summary="Declare a queue: created (201), or it exists with these settings (200).",
                answer=QueueAnswer,
                body=(QueueRequest,),
                parameters=(NAMESPACE,),
                refusals=_BODY,
            ),
            "DELETE": RestOperation(
                handler=queues.delete_queue,
                summary="Delete a queue and its messages.",
                answer=QueueDeleted,
                parameters=(NAMESPACE, queues.IF_UNUSED, queues.IF_EMPTY),
                refusals=(403, 404, 409),
            ),
        },
    ),
    Address(
        "/v1/exchanges",
        {
            "GET": RestOperation(
                handler=exchanges.list_exchanges,
                summary="List exchanges of a namespace.",
                answer=list[ExchangeAnswer],
                parameters=(NAMESPACE,),
            )
        },
    ),
    Address(
        "/v1/exchanges/{name:path}/messages",
        {
            "POST": RestOperation(
                handler=exchanges.publish_to_exchange,
                summary="Publish to an exchange; the key of a message is its routing key.",
                answer=Accepted,
                body=_MESSAGES,
                parameters=(NAMESPACE,),
                refusals=_BODY,
            )
        },
    ),
    Address(
        "/v1/exchanges/{name:path}",
        {
            "PUT": RestOperation(
                handler=exchanges.put_exchange,
                summary="Declare an exchange.",
                answer=ExchangeAnswer,
                body=(ExchangeRequest,),
                parameters=(NAMESPACE,),
                refusals=_BODY,
            ),
            "DELETE": RestOperation(
                handler=exchanges.delete_exchange,
                summary="Delete an exchange and its bindings.",
                answer=ExchangeDeleted,
                parameters=(NAMESPACE, exchanges.IF_UNUSED),
                refusals=(403, 409),
            ),
        },
    ),
    Address(
        "/v1/bindings",
        {
            "GET": RestOperation(
                handler=exchanges.list_bindings,
                summary="List bindings of a namespace.",
                answer=list[BindingBody],
                parameters=(NAMESPACE,),
            ),
            "POST": RestOperation(
                handler=exchanges.post_binding,
                summary="Bind a queue or an exchange to an exchange.",
                answer=BindingBody,
                status=201,
                body=(BindingBody,),
                parameters=(NAMESPACE,),
                refusals=_BODY,
            ),
            "DELETE": RestOperation(
                handler=exchanges.delete_binding,
                summary="Delete a binding.",
                answer=BindingBody,
                parameters=(
                    NAMESPACE,
                    exchanges.SOURCE,
                    exchanges.DESTINATION,
                    exchanges.KIND,
                    exchanges.KEY,
                ),
                refusals=(403, 404),
            ),
        },
    ),
)
