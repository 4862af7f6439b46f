"""Dispatches the requests of an authenticated client to their handlers.

Requests that do not wait are served at once, in order. Others run concurrently: a client that needs
an order waits for the response. The number of open requests is limited; at the limit, reading is
paused until some are answered.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.protocols.native.consuming import NativeConsuming
from mainstem.protocols.native.entities_service import Entities
from mainstem.protocols.native.errors import error_of
from mainstem.protocols.native.link import NativeConnectionLink, NativeService
from mainstem.protocols.native.pending_gets_service import PendingGets
from mainstem.protocols.native.publishing import NativePublishing
from mainstem.protocols.native.topics_service import NativeTopics
from mainstem.wire.native import requests
from mainstem.wire.native.answers import Pong
from mainstem.wire.native.words import Ok, Word

AtOnce = Callable[[Any], None]
InTime = Callable[[Any], Awaitable[Word]]

REASON: Final = "requests"


class RequestDispatcher:
    """Passes the requests of an authenticated client to their handlers."""

    def __init__(self, link: NativeConnectionLink, service: NativeService) -> None:
        self._link = link
        self._service = service
        self._open = 0
        self._is_over = False
        self._publishing = NativePublishing(link, service)
        gets = PendingGets(link, service)
        self._consuming = consuming = NativeConsuming(link, service, gets)
        entities, topics = Entities(link, service), NativeTopics(link, service)
        self._at_once: dict[type[Word], AtOnce] = {
            requests.Ack: consuming.ack,
            requests.Nack: consuming.nack,
            requests.Reject: consuming.reject,
            requests.Credit: consuming.credit,
            requests.Subscribe: consuming.subscribe,
            requests.Unsubscribe: consuming.unsubscribe,
        }
        self._in_time: dict[type[Word], InTime] = {
            requests.Get: gets.get,
            requests.DeclareQueue: entities.declare_queue,
            requests.DeleteQueue: entities.delete_queue,
            requests.PurgeQueue: entities.purge_queue,
            requests.ListQueues: entities.list_queues,
            requests.DescribeQueue: entities.describe_queue,
            requests.BrowseQueue: entities.browse_queue,
            requests.MoveMessages: entities.move_messages,
            requests.DeclareExchange: entities.declare_exchange,
            requests.DeleteExchange: entities.delete_exchange,
            requests.ListExchanges: entities.list_exchanges,
            requests.Bind: entities.bind,
            requests.Unbind: entities.unbind,
            requests.ListBindings: entities.list_bindings,
            requests.CreateTopic: topics.create_topic,
            requests.DeleteTopic: topics.delete_topic,
            requests.ListTopics: topics.list_topics,
            requests.Append: topics.append,
            requests.Read: topics.read,
        }

    @property
    def is_busy(self) -> bool:
        """Whether a response is pending."""
        return self._open > 0 or self._publishing.is_busy

    def serve(self, number: int, word: Word) -> None:
        """Serve one request."""
        try:
            if type(word) is requests.Publish:
                self._publishing.publish(number, word)
            else:
                self._serve(number, word)
        except MainstemError as error:
            self._link.send(number, error_of(error))

    def publish_run(
        self, word: requests.Publish, numbers: Sequence[int], values: Sequence[bytes]
    ) -> None:
        """Serve a run of publishes that differ only in numbers and values."""
        try:
            self._publishing.publish_run(word, numbers, values)
        except MainstemError as error:
            for number in numbers:
                self._link.send(number, error_of(error))

    def close(self) -> None:
        """Return unsettled deliveries and delete exclusive queues: the connection ends."""
        self._is_over = True
        self._publishing.close()
        self._consuming.close()
        self._service.broker.queues.connection_gone(self._link.connection)

    def _serve(self, number: int, word: Word) -> None:
        at_once = self._at_once.get(type(word))
        if at_once is not None:
            at_once(word)
            if number:
                self._link.send(number, Ok())
            return
        in_time = self._in_time.get(type(word))
        if in_time is not None:
            self._open += 1
            if self._open == self._service.limits.requests_open_max:
                self._link.backpressure.put(REASON, is_on=True)
            self._link.runner.run(in_time(word), partial(self._done, number))
        elif isinstance(word, requests.Ping):
            self._link.send(number, Pong())
        else:
            raise InvalidRequest(ErrorCode.ILLEGAL_LOGIN_STATE, "the client is already logged in")

    def _done(self, number: int, answer: Word | None, error: BaseException | None) -> None:
        if self._open == self._service.limits.requests_open_max:
            self._link.backpressure.put(REASON, is_on=False)
        self._open -= 1
        if self._is_over:
            return
        if error is not None or answer is None:
            self._link.send(number, error_of(error))
        elif number:
            self._link.send(number, answer)
