"""Queues, exchanges and bindings: declare, delete, list, browse, move."""

from functools import partial
from typing import Any, Final

from msgspec.structs import asdict, replace

from mainstem.broker.api.queues import (
    NATIVE,
    Binding,
    BindingView,
    DeliveryMode,
    Destination,
    Exchange,
    ExchangeKind,
    ExchangeView,
    OnDifference,
    Overflow,
    Queues,
    QueueSettings,
    QueueView,
)
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.protocols.native.convert import browsed_message, size_of
from mainstem.protocols.native.link import NativeConnectionLink, NativeService
from mainstem.security.authorisation.acl import Operation
from mainstem.wire.native import answers, requests
from mainstem.wire.native.words import Ok, WireQueueSettings

BROWSED_BYTES_MAX: Final = 8 << 20
_ENUMS: Final[dict[str, Any]] = {"mode": DeliveryMode, "overflow": Overflow}


class Entities:
    """Serves the requests of one connection about queues, exchanges and bindings."""

    def __init__(self, link: NativeConnectionLink, service: NativeService) -> None:
        self._link = link
        self._new_name = service.new_name
        self._queues: Queues = service.broker.queues

    # Queues

    async def declare_queue(self, word: requests.DeclareQueue) -> answers.DeclaredQueue:
        """Declare a queue, or with ``passive`` check that it exists."""
        link, queues = self._link, self._queues
        if word.passive:
            link.permissions.queue(Operation.DESCRIBE, word.name)
            found = queues.status(link.namespace, word.name, connection=link.connection)
        else:
            name = word.name or f"native.gen-{self._new_name()}"
            link.permissions.queue(Operation.CREATE, name)
            settings = settings_of(word.settings, is_plain=word.preset == "plain")
            if settings.dead_letter_exchange is not None:
                link.permissions.queue(Operation.READ, name)
                link.permissions.exchange(Operation.WRITE, settings.dead_letter_exchange)
            found = await queues.declare_queue(
                link.namespace,
                name,
                settings,
                connection=link.connection,
                policy=OnDifference(word.policy),
                keeps_failures=word.preset != "plain",
            )
        return answers.DeclaredQueue(
            name=found.name,
            messages=found.messages,
            consumers=found.consumers,
            is_new=found.is_new,
        )

    async def delete_queue(self, word: requests.DeleteQueue) -> answers.MessageCount:
        """Delete a queue."""
        link = self._link
        link.permissions.queue(Operation.DELETE, word.name)
        gone = await self._queues.delete_queue(
            link.namespace,
            word.name,
            connection=link.connection,
            if_unused=word.if_unused,
            if_empty=word.if_empty,
        )
        return answers.MessageCount(messages=gone)

    async def purge_queue(self, word: requests.PurgeQueue) -> answers.MessageCount:
        """Delete all messages except unsettled deliveries."""
        link = self._link
        link.permissions.queue(Operation.READ, word.name)
        gone = await self._queues.purge_queue(link.namespace, word.name, connection=link.connection)
        return answers.MessageCount(messages=gone)

    async def list_queues(self, _: requests.ListQueues) -> answers.QueueList:
        """List the queues that the client may see."""
        sees = self._link.permissions.sees_queue
        found = self._queues.admin.queues(self._link.namespace)
        return answers.QueueList(queues=[_queue_info(view) for view in found if sees(view.name)])

    async def describe_queue(self, word: requests.DescribeQueue) -> answers.QueueList:
        """Describe one queue."""
        self._link.permissions.queue(Operation.DESCRIBE, word.name)
        view = self._queues.admin.describe(self._link.namespace, word.name)
        return answers.QueueList(queues=[_queue_info(view)])

    async def browse_queue(self, word: requests.BrowseQueue) -> answers.BrowsedList:
        """Return messages without delivering them."""
        self._link.permissions.queue(Operation.READ, word.name)
        found = await self._queues.admin.browse(
            self._link.namespace, word.name, start=word.start, limit=word.limit
        )
        shown: list[answers.BrowsedMessage] = []
        size_bytes = 0
        for each in found:
            message = browsed_message(each)
            size_bytes += size_of(message.message)
            if shown and size_bytes > BROWSED_BYTES_MAX:
                break
            shown.append(message)
        return answers.BrowsedList(messages=shown)

    async def move_messages(self, word: requests.MoveMessages) -> answers.MessageCount:
        """Move messages of a queue to another queue."""
        link = self._link
        link.permissions.queue(Operation.READ, word.name)
        # Without a destination the history of each message decides: it may be any queue.
        link.permissions.queue(Operation.WRITE, "*" if word.to is None else word.to)
        move = partial(self._queues.admin.move, link.namespace, word.name)
        return answers.MessageCount(messages=await move(destination=word.to, limit=word.limit))

    # Exchanges

    async def declare_exchange(self, word: requests.DeclareExchange) -> Ok:
        """Declare an exchange, or with ``passive`` check that it exists."""
        link = self._link
        need = Operation.DESCRIBE if word.passive else Operation.CREATE
        link.permissions.exchange(need, word.name)
        if word.alternate is not None and not word.passive:
            link.permissions.exchange(Operation.WRITE, word.alternate)
        declared = Exchange(
            name=word.name,
            kind=_kind(word.kind),
            durable=word.durable,
            auto_delete=word.auto_delete,
            internal=word.internal,
            alternate=word.alternate,
            delayed=word.delayed,
        )
        await self._queues.declare_exchange(
            link.namespace, declared, passive=word.passive, shared=word.shared
        )
        return Ok()

    async def delete_exchange(self, word: requests.DeleteExchange) -> Ok:
        """Delete an exchange."""
        self._link.permissions.exchange(Operation.DELETE, word.name)
        await self._queues.delete_exchange(
            self._link.namespace, word.name, if_unused=word.if_unused
        )
        return Ok()

    async def list_exchanges(self, _: requests.ListExchanges) -> answers.ExchangeList:
        """List the exchanges that the client may see."""
        sees = self._link.permissions.sees_exchange
        found = self._queues.admin.exchanges(self._link.namespace)
        shown = [_exchange_info(view) for view in found if sees(view.exchange.name)]
        return answers.ExchangeList(exchanges=shown)

    # Bindings

    async def bind(self, word: requests.Bind) -> Ok:
        """Create a binding."""
        binding = self._binding(word)
        await self._queues.bind(self._link.namespace, binding, connection=self._link.connection)
        return Ok()

    async def unbind(self, word: requests.Unbind) -> Ok:
        """Delete a binding."""
        binding = self._binding(word)
        await self._queues.unbind(self._link.namespace, binding, connection=self._link.connection)
        return Ok()

    async def list_bindings(self, _: requests.ListBindings) -> answers.BindingList:
        """List the bindings whose both ends the client may see."""
        sees = self._link.permissions.sees_exchange
        found = self._queues.admin.bindings(self._link.namespace)
        shown = [_binding_info(view) for view in found if sees(view.binding.source)]
        return answers.BindingList(bindings=shown)

    def _binding(self, word: requests.Bind | requests.Unbind) -> Binding:
        permissions = self._link.permissions
        if word.to_exchange:
            permissions.exchange(Operation.WRITE, word.to)
        else:
            permissions.queue(Operation.WRITE, word.to)
        permissions.exchange(Operation.READ, word.exchange)
        arguments: dict[str, Any] = dict(word.headers)
        match = arguments.get("x-match")
        if isinstance(match, bytes):
            arguments["x-match"] = match.decode(errors="replace")
        return Binding(
            word.exchange, Destination(not word.to_exchange, word.to), word.key, arguments
        )


def settings_of(wire: WireQueueSettings, *, is_plain: bool) -> QueueSettings:
    """The queue settings of a declaration.

    Raises:
        InvalidRequest: a value is unknown.
    """
    given = {name: value for name, value in asdict(wire).items() if value is not None}
    for name, kind in _ENUMS.items():
        if name in given:
            try:
                given[name] = kind(given[name])
            except ValueError:
                raise InvalidRequest(
                    ErrorCode.INVALID_ARGUMENT,
                    f"{name}: {given[name]!r} is none of {', '.join(kind)}",
                    subject=name,
                ) from None
    return replace(QueueSettings() if is_plain else NATIVE, **given)


def _kind(name: str) -> ExchangeKind:
    try:
        return ExchangeKind(name)
    except ValueError:
        raise InvalidRequest(
            ErrorCode.INVALID_ARGUMENT,
            f"unknown exchange kind {name!r}",
            subject="kind",
            remedy=f"use one of {', '.join(ExchangeKind)}",
        ) from None


def _queue_info(view: QueueView) -> answers.QueueInfo:
    settings = asdict(view.settings)
    del settings["queue_type"]  # an AMQP argument without meaning here
    for name in _ENUMS:
        settings[name] = str(settings[name])
    return answers.QueueInfo(
        name=view.name,
        ready=view.ready,
        unsettled=view.unsettled,
        delayed=view.delayed,
        total=view.total,
        total_bytes=view.total_bytes,
        consumers=view.consumers,
        settings=WireQueueSettings(**settings),
    )


def _exchange_info(view: ExchangeView) -> answers.ExchangeInfo:
    exchange = view.exchange
    return answers.ExchangeInfo(
        name=exchange.name,
        kind=exchange.kind.value,
        durable=exchange.durable,
        auto_delete=exchange.auto_delete,
        internal=exchange.internal,
        alternate=exchange.alternate,
        delayed=exchange.delayed,
        topic=view.topic,
    )


def _binding_info(view: BindingView) -> answers.BindingInfo:
    binding = view.binding
    return answers.BindingInfo(
        exchange=binding.source,
        to=binding.destination.name,
        key=binding.key,
        headers={name: _bytes(value) for name, value in binding.arguments.items()},
        to_exchange=not binding.destination.is_queue,
    )


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return str(value).encode()
