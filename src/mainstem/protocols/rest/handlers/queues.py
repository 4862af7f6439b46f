"""Queues: list, describe, declare, delete, browse, consume, purge, move."""

from starlette.requests import Request
from starlette.responses import Response

from mainstem.broker.api.queues import (
    OnDifference,
    PeekedMessage,
    QueueView,
    arguments_of,
    death_history_of,
    selection,
    settings_of,
)
from mainstem.model.errors import Corrupt
from mainstem.model.records.record import Record
from mainstem.protocols.rest.convert import shown
from mainstem.protocols.rest.handler_context import HandlerContext
from mainstem.protocols.rest.incoming import check_json, decode, read_body
from mainstem.protocols.rest.queue_access import may_see, namespace_of, need_queue
from mainstem.protocols.rest.responses import PacedAnswer, json_answer
from mainstem.protocols.rest.routing.parameters import ChoiceParameter, IntegerParameter
from mainstem.protocols.rest.schemas.queues import (
    Counted,
    DeathAnswer,
    MoveRequest,
    QueueAnswer,
    QueueDeleted,
    QueuedMessage,
    QueueRequest,
    TakeRequest,
)
from mainstem.security.authorisation.acl import Operation

BROWSED_MAX = 1_000

START = IntegerParameter("start", "The first sequence number.", at_least=0, at_most=2**63 - 1)
LIMIT = IntegerParameter("limit", "How many messages at most.", at_least=1, at_most=BROWSED_MAX)
IF_UNUSED = ChoiceParameter("if_unused", "Refuse if the queue has consumers.", ("false", "true"))
IF_EMPTY = ChoiceParameter("if_empty", "Refuse if the queue has messages.", ("false", "true"))


async def list_queues(site: HandlerContext, request: Request) -> Response:
    """GET /v1/queues."""
    queues = site.broker.queues
    await queues.ready()
    return PacedAnswer(
        site.held,
        [
            _answer(view)
            for view in queues.admin.queues(namespace_of(request))
            if may_see(request, f"queue.{view.name}")
        ],
    )


async def get_queue(site: HandlerContext, request: Request) -> Response:
    """GET /v1/queues/{name}."""
    name = request.path_params["name"]
    need_queue(request, Operation.DESCRIBE, name)
    queues = site.broker.queues
    await queues.ready()
    return json_answer(_answer(queues.admin.describe(namespace_of(request), name)))


async def put_queue(site: HandlerContext, request: Request) -> Response:
    """PUT /v1/queues/{name}: created (201), or it exists with these settings (200)."""
    name = request.path_params["name"]
    need_queue(request, Operation.CREATE, name)
    check_json(request)
    body = await read_body(site, request)
    wanted = decode(body, QueueRequest) if body.strip() else QueueRequest()
    settings = settings_of(wanted.arguments, durable=wanted.durable, auto_delete=wanted.auto_delete)
    queues = site.broker.queues
    status = await queues.declare_queue(
        namespace_of(request), name, settings, policy=OnDifference(wanted.on_difference)
    )
    view = queues.admin.describe(namespace_of(request), name)
    return json_answer(_answer(view), 201 if status.is_new else 200)


async def delete_queue(site: HandlerContext, request: Request) -> Response:
    """DELETE /v1/queues/{name}."""
    name = request.path_params["name"]
    need_queue(request, Operation.DELETE, name)
    queues = site.broker.queues
    await queues.ready()
    queues.admin.describe(namespace_of(request), name)
    messages = await queues.delete_queue(
        namespace_of(request),
        name,
        if_unused=IF_UNUSED.of(request) == "true",
        if_empty=IF_EMPTY.of(request) == "true",
    )
    return json_answer(QueueDeleted(deleted=name, messages=messages))


async def browse_queue(site: HandlerContext, request: Request) -> Response:
    """GET /v1/queues/{name}/messages: browse without consuming."""
    name = request.path_params["name"]
    need_queue(request, Operation.READ, name)
    queues = site.broker.queues
    await queues.ready()
    found = await queues.admin.browse(
        namespace_of(request), name, start=START.of(request) or 0, limit=LIMIT.of(request) or 100
    )
    return PacedAnswer(site.held, [_message(each) for each in found])


async def take_messages(site: HandlerContext, request: Request) -> Response:
    """POST /v1/queues/{name}/take: consume with automatic acknowledgement."""
    name = request.path_params["name"]
    need_queue(request, Operation.READ, name)
    check_json(request)
    body = await read_body(site, request)
    wanted = decode(body, TakeRequest) if body.strip() else TakeRequest()
    queues = site.broker.queues
    await queues.ready()
    queues.admin.describe(namespace_of(request), name)
    taken: list[QueuedMessage] = []
    while len(taken) < wanted.count:
        given, _ = await queues.get(namespace_of(request), name, no_ack=True)
        if given is None:
            break
        browsed = PeekedMessage(
            given.sequence, given.message, given.exchange, "taken", given.attempt, given.failures
        )
        taken.append(_message(browsed))
    return PacedAnswer(site.held, taken)


async def purge_queue(site: HandlerContext, request: Request) -> Response:
    """POST /v1/queues/{name}/purge."""
    name = request.path_params["name"]
    need_queue(request, Operation.DELETE, name)
    queues = site.broker.queues
    await queues.ready()
    queues.admin.describe(namespace_of(request), name)
    return json_answer(Counted(messages=await queues.purge_queue(namespace_of(request), name)))


async def move_messages(site: HandlerContext, request: Request) -> Response:
    """POST /v1/queues/{name}/move."""
    name = request.path_params["name"]
    check_json(request)
    body = await read_body(site, request)
    wanted = decode(body, MoveRequest) if body.strip() else MoveRequest()
    need_queue(request, Operation.READ, name)
    need_queue(request, Operation.WRITE, wanted.destination or name)
    queues = site.broker.queues
    await queues.ready()
    moved = await queues.admin.move(
        namespace_of(request),
        name,
        destination=wanted.destination,
        where=selection(wanted.where),
        limit=wanted.limit,
    )
    return json_answer(Counted(messages=moved))


def _answer(view: QueueView) -> QueueAnswer:
    return QueueAnswer(
        name=view.name,
        namespace=view.namespace,
        durable=view.settings.durable,
        exclusive=view.settings.exclusive,
        auto_delete=view.settings.auto_delete,
        arguments=arguments_of(view.settings),
        ready=view.ready,
        unsettled=view.unsettled,
        delayed=view.delayed,
        dying=view.dying,
        total=view.total,
        total_bytes=view.total_bytes,
        consumers=view.consumers,
    )


def _message(browsed: PeekedMessage) -> QueuedMessage:
    message = browsed.message
    record = Record(0, message.timestamp_ms, message.key, message.value, message.headers)
    text = shown(record, 0, "auto")
    try:
        deaths = death_history_of(message)
    except Corrupt:
        deaths = ()
    return QueuedMessage(
        sequence=browsed.sequence,
        key=text.key,
        value=text.value,
        key_encoding=text.key_encoding,
        value_encoding=text.value_encoding,
        headers=text.headers,
        timestamp=message.timestamp_ms,
        exchange=browsed.exchange,
        place=browsed.place,
        attempts=browsed.attempts,
        failures=browsed.failures,
        deaths=[
            DeathAnswer(
                queue=death.queue,
                reason=death.reason,
                count=death.count,
                exchange=death.exchange,
                routing_keys=list(death.routing_keys),
                time_ms=death.time_ms,
            )
            for death in deaths
        ],
    )
