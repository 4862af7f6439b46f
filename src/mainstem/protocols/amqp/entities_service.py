"""Handlers of AMQP methods about exchanges, queues, bindings and single messages.

Each handler takes the ``ChannelContext`` and a method and returns the answer, which is sent unless
the client set ``nowait``. Refusals use RabbitMQ's texts.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from msgspec import Struct

from mainstem.broker.api.queues import (
    DEFAULT_EXCHANGE,
    DEFAULT_NAMESPACE,
    Binding,
    Delivery,
    DeliverySource,
    Destination,
    Exchange,
    ExchangeKind,
    Queues,
    exchange_of,
    settings_of,
)
from mainstem.broker.api.security import Rights
from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.protocols.amqp.channel_link import AmqpService, ChannelLink
from mainstem.protocols.amqp.convert import binding_arguments
from mainstem.protocols.amqp.direct_reply import PREFIX, REPLY_TO
from mainstem.protocols.amqp.errors import (
    ACCESS_REFUSED,
    COMMAND_INVALID,
    NOT_ALLOWED,
    NOT_FOUND,
    PRECONDITION_FAILED,
    ChannelRefusal,
    ConnectionRefusal,
    translated,
)
from mainstem.protocols.permissions import ClientPermissions
from mainstem.security.authorisation.acl import CLUSTER_NAME, Operation, ResourceType
from mainstem.wire.amqp.entity_methods import (
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    ExchangeUnbind,
    ExchangeUnbindOk,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    QueueUnbind,
    QueueUnbindOk,
)
from mainstem.wire.amqp.method import Method

RESERVED: Final = "amq."
NAMESPACES_MAX: Final = 1_000
ALWAYS_THERE: Final = Exchange(name="amq.direct", kind=ExchangeKind.DIRECT)
_TYPES: Final = frozenset({*ExchangeKind, "x-delayed-message"})


class ChannelContext(Struct):
    """The connection and permissions of a channel, and the queue that it declared last."""

    link: ChannelLink
    service: AmqpService
    permissions: ClientPermissions
    last_queue: str = ""

    def queue(self, name: str) -> str:
        """The name of a queue; an empty one means the queue declared last."""
        if name:
            return name
        if not self.last_queue:
            raise ChannelRefusal(NOT_FOUND, "no previously declared queue")
        return self.last_queue


class GetResult(NamedTuple):
    """The answer to ``basic.get``; ``left`` is the number of messages that remain ready."""

    delivery: Delivery | None
    left: int
    reports_failures: bool


Handler = Callable[[ChannelContext, Any], Awaitable[Method]]


async def enter(queues: Queues, namespace: str, rights: Rights, user: str) -> None:
    """Open a virtual host for a client; the topics it needs are created if missing.

    Raises:
        ConnectionRefusal: it does not exist, and the client may not create it.
    """
    await queues.ready()
    if namespace != DEFAULT_NAMESPACE:
        known = queues.admin.namespaces()
        if namespace not in known:
            if not rights.may(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME):
                raise ConnectionRefusal(
                    NOT_ALLOWED, f"access to vhost '{namespace}' refused for user '{user}'"
                )
            if len(known) >= NAMESPACES_MAX:
                raise ConnectionRefusal(NOT_ALLOWED, f"limit of {len(known)} vhosts reached")
    await queues.declare_exchange(namespace, ALWAYS_THERE, passive=True)


async def declare_exchange(place: ChannelContext, method: ExchangeDeclare) -> Method:
    """``exchange.declare``."""
    name, link = _clean(method.exchange), place.link
    _not_default(name)
    if method.passive:
        declared = Exchange(name=name, kind=ExchangeKind.DIRECT)
    else:
        if method.type not in _TYPES:
            raise ConnectionRefusal(COMMAND_INVALID, f"unknown exchange type '{method.type}'")
        place.permissions.exchange(Operation.CREATE, name)
    with _about("exchange", name, link):
        if not method.passive:
            declared = exchange_of(
                name,
                method.type,
                method.arguments,
                durable=method.durable,
                auto_delete=method.auto_delete,
                internal=method.internal,
            )
        await place.service.queues.declare_exchange(
            link.namespace, declared, passive=method.passive
        )
    return ExchangeDeclareOk()


async def delete_exchange(place: ChannelContext, method: ExchangeDelete) -> Method:
    """``exchange.delete``."""
    name, link = _clean(method.exchange), place.link
    _not_default(name)
    if name.startswith(RESERVED):
        raise ChannelRefusal(
            ACCESS_REFUSED, f"exchange name '{name}' contains reserved prefix 'amq.*'"
        )
    place.permissions.exchange(Operation.DELETE, name)
    with _about("exchange", name, link):
        await place.service.queues.delete_exchange(link.namespace, name, if_unused=method.if_unused)
    return ExchangeDeleteOk()


async def bind_exchange(place: ChannelContext, method: ExchangeBind) -> Method:
    """``exchange.bind``."""
    await _bind(place, _between_exchanges(place, method))
    return ExchangeBindOk()


async def unbind_exchange(place: ChannelContext, method: ExchangeUnbind) -> Method:
    """``exchange.unbind``."""
    await _unbind(place, _between_exchanges(place, method))
    return ExchangeUnbindOk()


async def declare_queue(place: ChannelContext, method: QueueDeclare) -> Method:
    """``queue.declare``."""
    link, queues = place.link, place.service.queues
    name = _clean(method.queue)
    if name == REPLY_TO or name.startswith(PREFIX):
        return _declared_replies(place, name)
    if method.passive:
        name = place.queue(name)
        with _about("queue", name, link):
            status = queues.status(link.namespace, name, connection=link.connection, is_use=True)
    else:
        if not name:
            name = f"amq.gen-{place.service.new_name()}"
        elif name.startswith(RESERVED):
            _not_new(place, name)
        place.permissions.queue(Operation.CREATE, name)
        with _about("queue", name, link):
            settings = settings_of(
                method.arguments,
                durable=method.durable,
                exclusive=method.exclusive,
                auto_delete=method.auto_delete,
            )
            status = await queues.declare_queue(
                link.namespace, name, settings, connection=link.connection
            )
    place.last_queue = name
    return QueueDeclareOk(
        queue=name, message_count=status.messages, consumer_count=status.consumers
    )


async def bind_queue(place: ChannelContext, method: QueueBind) -> Method:
    """``queue.bind``."""
    await _bind(place, _to_queue(place, method))
    return QueueBindOk()


async def unbind_queue(place: ChannelContext, method: QueueUnbind) -> Method:
    """``queue.unbind``."""
    await _unbind(place, _to_queue(place, method))
    return QueueUnbindOk()


async def purge_queue(place: ChannelContext, method: QueuePurge) -> Method:
    """``queue.purge``."""
    name, link = place.queue(method.queue), place.link
    place.permissions.queue(Operation.READ, name)
    with _about("queue", name, link):
        count = await place.service.queues.purge_queue(
            link.namespace, name, connection=link.connection
        )
    return QueuePurgeOk(message_count=count)


async def delete_queue(place: ChannelContext, method: QueueDelete) -> Method:
    """``queue.delete``; deleting a queue that does not exist succeeds."""
    name, link = place.queue(_clean(method.queue)), place.link
    place.permissions.queue(Operation.DELETE, name)
    count = 0
    with _about("queue", name, link, may_miss=True):
        count = await place.service.queues.delete_queue(
            link.namespace,
            name,
            connection=link.connection,
            if_unused=method.if_unused,
            if_empty=method.if_empty,
        )
    return QueueDeleteOk(message_count=count)


async def get_message(place: ChannelContext, queue: str, *, no_ack: bool) -> GetResult:
    """``basic.get``: returns a message, if one is ready."""
    link, queues = place.link, place.service.queues
    with _about("queue", queue, link):
        status = queues.status(link.namespace, queue, connection=link.connection)
        delivery, left = await queues.get(
            link.namespace, queue, connection=link.connection, no_ack=no_ack
        )
    return GetResult(delivery, left, status.reports_failures)


HANDLERS: Final[dict[type[Method], Handler]] = {
    ExchangeDeclare: declare_exchange,
    ExchangeDelete: delete_exchange,
    ExchangeBind: bind_exchange,
    ExchangeUnbind: unbind_exchange,
    QueueDeclare: declare_queue,
    QueueBind: bind_queue,
    QueueUnbind: unbind_queue,
    QueuePurge: purge_queue,
    QueueDelete: delete_queue,
}


async def _bind(place: ChannelContext, binding: Binding) -> None:
    link = place.link
    with _about(*_destination(binding), link):
        await place.service.queues.bind(link.namespace, binding, connection=link.connection)


async def _unbind(place: ChannelContext, binding: Binding) -> None:
    link = place.link
    # Unbinding succeeds if the binding, the queue or the exchange does not exist.
    with _about(*_destination(binding), link, may_miss=True):
        await place.service.queues.unbind(link.namespace, binding, connection=link.connection)


def _destination(binding: Binding) -> tuple[str, str]:
    return ("queue" if binding.destination.is_queue else "exchange"), binding.destination.name


def _between_exchanges(place: ChannelContext, method: ExchangeBind | ExchangeUnbind) -> Binding:
    source, name = _clean(method.source), _clean(method.destination)
    _not_default(source)
    _not_default(name)
    place.permissions.exchange(Operation.WRITE, name)
    place.permissions.exchange(Operation.READ, source)
    destination = Destination(is_queue=False, name=name)
    return Binding(source, destination, method.routing_key, binding_arguments(method.arguments))


def _to_queue(place: ChannelContext, method: QueueBind | QueueUnbind) -> Binding:
    queue, exchange = place.queue(_clean(method.queue)), _clean(method.exchange)
    _not_default(exchange)
    place.permissions.queue(Operation.WRITE, queue)
    place.permissions.exchange(Operation.READ, exchange)
    key = method.routing_key
    if not key and not method.queue:
        # Neither name is given: the queue declared last, with its name as the routing key.
        key = queue
    return Binding(
        exchange,
        Destination(is_queue=True, name=queue),
        key,
        binding_arguments(method.arguments),
    )


def _clean(name: str) -> str:
    """The name without line breaks: RabbitMQ removes them in declarations and bindings."""
    return name.replace("\r", "").replace("\n", "")


def _declared_replies(place: ChannelContext, name: str) -> Method:
    if name != REPLY_TO and name not in place.service.replies:
        raise ChannelRefusal(NOT_FOUND, f"no queue '{name}' in vhost '{place.link.namespace}'")
    return QueueDeclareOk(queue=name, message_count=0, consumer_count=1)


def _not_default(exchange: str) -> None:
    if exchange == DEFAULT_EXCHANGE:
        raise ChannelRefusal(ACCESS_REFUSED, "operation not permitted on the default exchange")


def _not_new(place: ChannelContext, name: str) -> None:
    """Refuse reserved names of new queues; an existing queue may have one."""
    link = place.link
    try:
        place.service.queues.status(link.namespace, name, connection=link.connection)
    except MainstemError as error:
        if error.code is ErrorCode.UNKNOWN_QUEUE:
            raise ChannelRefusal(
                ACCESS_REFUSED, f"queue name '{name}' contains reserved prefix 'amq.*'"
            ) from error


@contextmanager
def _about(what: str, name: str, link: ChannelLink, *, may_miss: bool = False) -> Iterator[None]:
    try:
        yield
    except MainstemError as error:
        missing = (ErrorCode.UNKNOWN_QUEUE, ErrorCode.UNKNOWN_EXCHANGE)
        if may_miss and error.code in missing:
            return
        if error.code in (ErrorCode.RESOURCE_IN_USE, ErrorCode.QUEUE_NOT_EMPTY):
            state = "in use" if error.code is ErrorCode.RESOURCE_IN_USE else "not empty"
            text = f"{what} '{name}' in vhost '{link.namespace}' {state}"
            raise ChannelRefusal(PRECONDITION_FAILED, text) from error
        raise translated(error, what, name, link.namespace) from error


async def all_settled(sources: Iterable[DeliverySource]) -> None:
    """Return once all settlements are committed."""
    for source in sources:
        await source.settled()
