"""One channel: serves its methods and messages one at a time, in the order of arrival.

While a method waits for its answer (a declaration has to be committed), later frames of the
same channel are buffered; other channels continue. The connection stops reading while too much is
buffered.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

from mainstem.broker.api.queues import ACKNOWLEDGE, REJECT, RETURN, Settlement
from mainstem.model.errors import MainstemError
from mainstem.protocols.amqp import entities_service
from mainstem.protocols.amqp.channel_link import AmqpService, ChannelLink
from mainstem.protocols.amqp.consuming import AmqpConsuming, Held
from mainstem.protocols.amqp.content_assembly import Content, ContentAssembly, Unfinished
from mainstem.protocols.amqp.direct_reply import REPLY_TO
from mainstem.protocols.amqp.entities_service import ChannelContext, all_settled, get_message
from mainstem.protocols.amqp.errors import (
    COMMAND_INVALID,
    INTERNAL_ERROR,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    SYNTAX_ERROR,
    AmqpError,
    ChannelRefusal,
    ConnectionRefusal,
    translated,
)
from mainstem.protocols.amqp.permissions import amqp_permissions
from mainstem.protocols.amqp.publishing import AmqpPublishing, Mode
from mainstem.security.authorisation.acl import Operation
from mainstem.wire.amqp import basic_methods as basic
from mainstem.wire.amqp import connection_methods as connection
from mainstem.wire.amqp import entity_methods as entity
from mainstem.wire.amqp.fields import Malformed
from mainstem.wire.amqp.method import Method

METHOD_BYTES: Final = 256  # assumed size of a buffered method
PUBLISH_NUMBERS: Final = basic.BasicPublish.ID

Item = Method | Content


class Channel:
    """Serves the methods and messages of one channel in order."""

    def __init__(
        self, number: int, link: ChannelLink, service: AmqpService, unfinished: Unfinished
    ) -> None:
        self.number = number
        self.assembly = ContentAssembly(service.limits.message_bytes_max, unfinished)
        self._link = link
        permissions = amqp_permissions(link.rights, link.namespace, link.user)
        self.permissions = permissions
        self.place = ChannelContext(link, service, permissions)
        self.publishing = AmqpPublishing(number, link, service, permissions)
        self.consuming = AmqpConsuming(number, link, service)
        self._settled: list[tuple[list[Held], Settlement]] = []
        self._later: deque[Item] = deque()
        self._later_bytes = 0
        self._is_busy = False
        self.is_closed = False

    def take(self, item: Item) -> None:
        """Serve a method or a message, or buffer it while the channel is busy."""
        if self._is_busy:
            self._keep(item)
        else:
            self._serve(item)

    def acknowledge(self, tag: int, *, multiple: bool) -> None:
        """Handle ``basic.ack``; a shortcut, because it is the most frequent method."""
        if self._is_busy:
            self._keep(basic.BasicAck(tag, multiple))
            return
        try:
            self.settle(tag, ACKNOWLEDGE, multiple=multiple)
        except (AmqpError, MainstemError, Malformed) as error:
            refusal = _refusal(error, self._link.namespace)
            self._link.refuse(self.number, refusal, basic.BasicAck.ID)

    @property
    def is_to_be_closed(self) -> bool:
        """Whether a ``channel.close`` of the client is among the buffered methods."""
        return any(isinstance(item, connection.ChannelClose) for item in self._later)

    def close(self) -> None:
        """Close the channel."""
        self.is_closed = True
        self.assembly.forget()
        self._later.clear()
        self._link.backlog_changed(-self._later_bytes)
        self._later_bytes = 0
        self.publishing.close()
        for held, _ in self._settled:
            self.consuming.keep(held)
        self.consuming.close()

    def reply(self, method: Method) -> None:
        """Send an answer to the client, unless the channel was closed meanwhile."""
        if not self.is_closed:
            self._link.method(self.number, method)

    def wait_for(self, work: Awaitable[Any], numbers: tuple[int, int], done: Any) -> None:
        """Serve nothing else on this channel until ``work`` is done."""
        self._is_busy = True
        self.consuming.waits(is_waiting=True)

        def finished(answer: Any, error: BaseException | None) -> None:
            if error is None:
                done(answer)
            elif not self.is_closed:
                self._link.refuse(self.number, _refusal(error, self._link.namespace), numbers)
            self.consuming.waits(is_waiting=False)
            self.go_on()

        self._link.runner.run(work, finished)

    def hold(self) -> None:
        """Serve nothing else on this channel until ``go_on``."""
        self._is_busy = True

    def hold_for_published(self, method: Method) -> None:
        """Serve a method once everything published before it is in its queues."""
        self.hold()

        def settled() -> None:
            self._is_busy = False
            self._serve(method)
            if not self._is_busy:
                self.go_on()

        self.publishing.when_settled(settled)

    def go_on(self) -> None:
        """Serve the buffered methods and messages."""
        self._is_busy = False
        while self._later and not self._is_busy and not self.is_closed:
            item = self._later.popleft()
            size = _weight(item)
            self._later_bytes -= size
            self._link.backlog_changed(-size)
            self._serve(item)

    def settle(self, tag: int, how: Settlement, *, multiple: bool) -> None:
        """Settle deliveries, immediately or with the transaction."""
        held = self.consuming.take(tag, multiple=multiple)
        if self.publishing.mode is Mode.TX:
            self._settled.append((held, how))
        else:
            self.consuming.settle(held, how)

    def commit(self) -> None:
        """``tx.commit``: store the published messages first, then apply the settlements.

        The answer is sent once both are committed: no settled message is delivered again.
        """
        self._need_transaction()
        self.hold()

        def stored(is_whole: bool) -> None:  # noqa: FBT001 - a callback
            settled, self._settled = self._settled, []
            for held, how in settled:
                self.consuming.settle(held, how)
            sources = {source: None for held, _ in settled for _, source, _ in held}
            if not is_whole:
                refusal = ChannelRefusal(PRECONDITION_FAILED, "partial tx completion")
                self._link.refuse(self.number, refusal, basic.TxCommit.ID)
                self.go_on()
            elif sources:
                self.wait_for(
                    all_settled(sources),
                    basic.TxCommit.ID,
                    lambda _: self.reply(basic.TxCommitOk()),
                )
            else:
                self.reply(basic.TxCommitOk())
                self.go_on()

        self.publishing.commit(stored)

    def rollback(self) -> None:
        """``tx.rollback``: discard publishes; settled deliveries become unsettled again."""
        self._need_transaction()
        self.publishing.rollback()
        for held, _ in self._settled:
            self.consuming.keep(held)
        self._settled.clear()
        self.reply(basic.TxRollbackOk())

    def _need_transaction(self) -> None:
        if self.publishing.mode is not Mode.TX:
            raise ChannelRefusal(PRECONDITION_FAILED, "channel is not transactional")

    def _keep(self, item: Item) -> None:
        size = _weight(item)
        self._later.append(item)
        self._later_bytes += size
        self._link.backlog_changed(size)

    def _serve(self, item: Item) -> None:
        numbers = PUBLISH_NUMBERS if isinstance(item, Content) else item.ID
        try:
            if isinstance(item, Content):
                self.publishing.publish(item)
            else:
                _dispatch(self, item)
        except (AmqpError, MainstemError, Malformed) as error:
            self._link.refuse(self.number, _refusal(error, self._link.namespace), numbers)


def _weight(item: Item) -> int:
    return METHOD_BYTES + (item.size_bytes if isinstance(item, Content) else 0)


def _refusal(error: BaseException, namespace: str) -> AmqpError:
    if isinstance(error, AmqpError):
        return error
    if isinstance(error, MainstemError):
        return translated(error, "", "", namespace)
    if isinstance(error, Malformed):
        return ConnectionRefusal(SYNTAX_ERROR, str(error))
    return ConnectionRefusal(INTERNAL_ERROR, "internal error; see the log of the node")


def _dispatch(channel: Channel, method: Method) -> None:
    kind = type(method)
    if kind in _COUNTING and not channel.publishing.is_settled:
        channel.hold_for_published(method)
        return
    declare = entities_service.HANDLERS.get(kind)
    if declare is not None:
        answer = None if getattr(method, "nowait", False) else channel.reply
        work = declare(channel.place, method)
        channel.wait_for(work, method.ID, answer or _ignore)
        return
    handler = _HANDLERS.get(kind)
    if handler is None:
        raise ConnectionRefusal(COMMAND_INVALID, f"{method.NAME} may not be sent by clients")
    handler(channel, method)


def _ignore(_answer: Any) -> None:
    """Discard the answer: the client set ``nowait``."""


def _flow(channel: Channel, method: connection.ChannelFlow) -> None:
    channel.consuming.flow(active=method.active)
    channel.reply(connection.ChannelFlowOk(active=method.active))


def _qos(channel: Channel, method: basic.BasicQos) -> None:
    channel.consuming.qos(method)
    channel.reply(basic.BasicQosOk())


def _consume(channel: Channel, method: basic.BasicConsume) -> None:
    queue = channel.place.queue(method.queue)
    if queue == REPLY_TO:
        tag, channel.publishing.reply_name = channel.consuming.consume_replies(method)
    else:
        channel.permissions.queue(Operation.READ, queue)
        tag = channel.consuming.consume(method, queue)
    if not method.nowait:
        channel.reply(basic.BasicConsumeOk(consumer_tag=tag))


def _cancel(channel: Channel, method: basic.BasicCancel) -> None:
    channel.consuming.cancel(method.consumer_tag)
    if not method.nowait:
        channel.reply(basic.BasicCancelOk(consumer_tag=method.consumer_tag))


def _get(channel: Channel, method: basic.BasicGet) -> None:
    place = channel.place
    queue = place.queue(method.queue)
    channel.permissions.queue(Operation.READ, queue)
    channel.wait_for(
        get_message(place, queue, no_ack=method.no_ack),
        method.ID,
        lambda found: channel.consuming.got(found, no_ack=method.no_ack),
    )


def _ack(channel: Channel, method: basic.BasicAck) -> None:
    channel.settle(method.delivery_tag, ACKNOWLEDGE, multiple=method.multiple)


def _nack(channel: Channel, method: basic.BasicNack) -> None:
    how = RETURN if method.requeue else REJECT
    channel.settle(method.delivery_tag, how, multiple=method.multiple)


def _reject(channel: Channel, method: basic.BasicReject) -> None:
    how = RETURN if method.requeue else REJECT
    channel.settle(method.delivery_tag, how, multiple=False)


def _recover(channel: Channel, method: basic.BasicRecover | basic.BasicRecoverAsync) -> None:
    if not method.requeue:
        raise ConnectionRefusal(NOT_IMPLEMENTED, "requeue=false")
    channel.consuming.recover()
    if isinstance(method, basic.BasicRecover):
        channel.reply(basic.BasicRecoverOk())


def _confirm(channel: Channel, method: basic.ConfirmSelect) -> None:
    channel.publishing.select(Mode.CONFIRM)
    if not method.nowait:
        channel.reply(basic.ConfirmSelectOk())


def _transact(channel: Channel, _: basic.TxSelect) -> None:
    channel.publishing.select(Mode.TX)
    channel.reply(basic.TxSelectOk())


# Their results, or their order, depend on messages published before.
_COUNTING: Final = frozenset(
    {
        basic.BasicGet,
        basic.ConfirmSelect,
        entity.QueueDeclare,
        entity.QueuePurge,
        entity.QueueDelete,
        entity.ExchangeDelete,
        connection.ChannelClose,
    }
)
_HANDLERS: Final[dict[type[Method], Callable[[Channel, Any], None]]] = {
    connection.ChannelClose: lambda channel, _: channel.place.link.end(channel.number),
    connection.ChannelCloseOk: lambda _channel, _method: None,
    connection.ChannelFlow: _flow,
    connection.ChannelFlowOk: lambda _channel, _method: None,
    basic.BasicQos: _qos,
    basic.BasicConsume: _consume,
    basic.BasicCancel: _cancel,
    basic.BasicCancelOk: lambda _channel, _method: None,
    basic.BasicGet: _get,
    basic.BasicAck: _ack,
    basic.BasicNack: _nack,
    basic.BasicReject: _reject,
    basic.BasicRecover: _recover,
    basic.BasicRecoverAsync: _recover,
    basic.ConfirmSelect: _confirm,
    basic.TxSelect: _transact,
    basic.TxCommit: lambda channel, _: channel.commit(),
    basic.TxRollback: lambda channel, _: channel.rollback(),
}
