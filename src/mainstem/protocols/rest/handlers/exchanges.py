"""Exchanges and bindings: list, declare, delete; and publishing to an exchange or a queue."""

import asyncio
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from mainstem.broker.api.queues import (
    DEFAULT_EXCHANGE,
    Binding,
    BindingView,
    Destination,
    ExchangeView,
    Published,
    Routing,
    exchange_of,
)
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.model.message import Message
from mainstem.protocols.rest.access import charge, refuse_debt
from mainstem.protocols.rest.handler_context import HandlerContext
from mainstem.protocols.rest.handlers.produce import asked_messages
from mainstem.protocols.rest.incoming import check_json, decode, read_body
from mainstem.protocols.rest.queue_access import (
    may_see,
    namespace_of,
    need_exchange,
    need_queue,
)
from mainstem.protocols.rest.responses import PacedAnswer, json_answer
from mainstem.protocols.rest.routing.parameters import ChoiceParameter, TextParameter
from mainstem.protocols.rest.schemas.queues import (
    Accepted,
    BindingBody,
    ExchangeAnswer,
    ExchangeDeleted,
    ExchangeRequest,
)
from mainstem.security.authorisation.acl import Operation
from mainstem.security.quotas import PRODUCE_BYTES

COMMIT_TIMEOUT_S = 30.0

IF_UNUSED = ChoiceParameter("if_unused", "Refuse if the exchange has bindings.", ("false", "true"))
SOURCE = TextParameter("source", "The source exchange of the binding.")
DESTINATION = TextParameter("destination", "The destination queue or exchange.")
KIND = ChoiceParameter("destination_type", "Type of the destination.", ("queue", "exchange"))
KEY = TextParameter("key", "The binding key.")


async def list_exchanges(site: HandlerContext, request: Request) -> Response:
    """GET /v1/exchanges."""
    queues = site.broker.queues
    await queues.ready()
    return PacedAnswer(
        site.held,
        [
            _answer(view)
            for view in queues.admin.exchanges(namespace_of(request))
            if may_see(request, view.exchange.name)
        ],
    )


async def put_exchange(site: HandlerContext, request: Request) -> Response:
    """PUT /v1/exchanges/{name}."""
    name = request.path_params["name"]
    need_exchange(request, Operation.CREATE, name)
    check_json(request)
    body = await read_body(site, request)
    wanted = decode(body, ExchangeRequest) if body.strip() else ExchangeRequest()
    declared = exchange_of(
        name,
        wanted.type,
        wanted.arguments,
        durable=wanted.durable,
        auto_delete=wanted.auto_delete,
        internal=wanted.internal,
    )
    queues = site.broker.queues
    if wanted.shared:
        need_exchange(request, Operation.READ, name)
    await queues.declare_exchange(namespace_of(request), declared, shared=wanted.shared)
    found = [
        view for view in queues.admin.exchanges(namespace_of(request)) if view.exchange.name == name
    ]
    return json_answer(_answer(found[0]))


async def delete_exchange(site: HandlerContext, request: Request) -> Response:
    """DELETE /v1/exchanges/{name}."""
    name = request.path_params["name"]
    need_exchange(request, Operation.DELETE, name)
    await site.broker.queues.delete_exchange(
        namespace_of(request), name, if_unused=IF_UNUSED.of(request) == "true"
    )
    return json_answer(ExchangeDeleted(deleted=name))


async def list_bindings(site: HandlerContext, request: Request) -> Response:
    """GET /v1/bindings."""
    queues = site.broker.queues
    await queues.ready()
    return PacedAnswer(
        site.held,
        [
            _binding_answer(view)
            for view in queues.admin.bindings(namespace_of(request))
            if may_see(request, view.binding.source)
        ],
    )


async def post_binding(site: HandlerContext, request: Request) -> Response:
    """POST /v1/bindings."""
    check_json(request)
    wanted = decode(await read_body(site, request), BindingBody)
    binding = _binding(request, wanted)
    await site.broker.queues.bind(namespace_of(request), binding)
    return json_answer(wanted, 201)


async def delete_binding(site: HandlerContext, request: Request) -> Response:
    """DELETE /v1/bindings."""
    wanted = BindingBody(
        source=SOURCE.of(request) or "",
        destination=DESTINATION.of(request) or "",
        destination_type=KIND.of(request),
        key=KEY.of(request) or "",
    )
    binding = _binding(request, wanted)
    await site.broker.queues.unbind(namespace_of(request), binding)
    return json_answer(wanted)


async def publish_to_exchange(site: HandlerContext, request: Request) -> Response:
    """POST /v1/exchanges/{name}/messages: a message's key is its routing key."""
    name = request.path_params["name"]
    need_exchange(request, Operation.WRITE, name)
    messages = await asked_messages(site, request)
    return await _published(site, request, name, messages)


async def publish_to_queue(site: HandlerContext, request: Request) -> Response:
    """POST /v1/queues/{name}/messages."""
    name = request.path_params["name"]
    need_queue(request, Operation.WRITE, name)
    await site.broker.queues.ready()
    site.broker.queues.admin.describe(namespace_of(request), name)
    key = name.encode()
    messages = [each._replace(key=key) for each in await asked_messages(site, request)]
    return await _published(site, request, DEFAULT_EXCHANGE, messages)


async def _published(
    site: HandlerContext, request: Request, exchange: str, messages: Sequence[Message]
) -> Response:
    """Publish in order and wait until every message is committed, or refused."""
    queues = site.broker.queues
    await queues.ready()
    refuse_debt(request, PRODUCE_BYTES)
    charge(request, PRODUCE_BYTES, sum(len(each.value or b"") for each in messages))
    done = asyncio.Event()
    left = len(messages)
    unrouted = 0
    failure: MainstemError | None = None

    def settled(tokens: Sequence[int], published: Published) -> None:
        nonlocal left, unrouted, failure
        left -= len(tokens)
        if published.error is not None:
            failure = published.error
        elif not published.is_routed:
            unrouted += len(tokens)
        if not left:
            done.set()

    publisher = queues.publisher(namespace_of(request), settled)
    for token, message in enumerate(messages):
        publisher.publish(exchange, message, _routing(message), token)
    try:
        async with asyncio.timeout(COMMIT_TIMEOUT_S):
            await done.wait()
    except TimeoutError:
        raise Unavailable(
            ErrorCode.TIMED_OUT, f"not committed within {COMMIT_TIMEOUT_S:.0f} seconds"
        ) from None
    finally:
        publisher.close()
    if failure is not None:
        raise failure
    return json_answer(Accepted(stored=len(messages), unrouted=unrouted))


def _routing(message: Message) -> Routing:
    key = "" if message.key is None else message.key.decode(errors="replace")
    return Routing((key,), dict(message.headers), message.priority or 0, message.expires_ms or 0)


def _binding(request: Request, wanted: BindingBody) -> Binding:
    is_queue = wanted.destination_type == "queue"
    need_exchange(request, Operation.READ, wanted.source)
    (need_queue if is_queue else need_exchange)(request, Operation.WRITE, wanted.destination)
    target = Destination(is_queue=is_queue, name=wanted.destination)
    # Headers of records are bytes, so a binding compares them as bytes.
    arguments = {
        name: value if name.startswith("x-match") or value is None else _text(value).encode()
        for name, value in wanted.arguments.items()
    }
    return Binding(wanted.source, target, wanted.key, arguments)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _answer(view: ExchangeView) -> ExchangeAnswer:
    exchange = view.exchange
    return ExchangeAnswer(
        name=exchange.name,
        namespace=view.namespace,
        type=exchange.kind,
        durable=exchange.durable,
        auto_delete=exchange.auto_delete,
        internal=exchange.internal,
        alternate=exchange.alternate,
        delayed=exchange.delayed,
        topic=view.topic,
        bindings=view.bindings,
    )


def _binding_answer(view: BindingView) -> BindingBody:
    binding = view.binding
    return BindingBody(
        source=binding.source,
        destination=binding.destination.name,
        destination_type="queue" if binding.destination.is_queue else "exchange",
        key=binding.key,
        arguments={
            name: value.decode(errors="replace") if isinstance(value, bytes) else value
            for name, value in binding.arguments.items()
        },
    )
