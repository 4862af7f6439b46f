"""A publisher: its pending confirms, and whether it should wait.

Confirms are collected and reported in few calls, each with the tokens of all publishes with the
same result.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Protocol

from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.model.message import Message
from mainstem.queues.api_types import Published, PublishStatus, Routing
from mainstem.queues.counts import QueueCounts
from mainstem.queues.routing.exchange import PREDECLARED_NAMES

OnSettled = Callable[[Sequence[int], Published], None]
OnFlow = Callable[[bool], None]

ROUTED = Published(PublishStatus.STORED, is_routed=True)
UNROUTED = Published(PublishStatus.STORED, is_routed=False)
NOBODY = Published(PublishStatus.NOBODY, is_routed=False)


class PublishTarget(Protocol):
    """A virtual host as a publisher sees it."""

    def publish(
        self,
        publisher: "QueuePublisher",
        exchange: str,
        message: Message,
        routing: Routing,
        token: int,
    ) -> None:
        """Accept a message, refuse it, or park it."""
        ...

    def publish_many(
        self,
        publisher: "QueuePublisher",
        exchange: str,
        messages: Sequence[Message],
        routing: Routing,
        first: int,
    ) -> bool:
        """Accept all of these if nothing prevents it; False: publish them one by one."""
        ...


class PublisherContext(Protocol):
    """The operations of other drivers that publishers use."""

    counts: QueueCounts
    is_slow: bool

    @property
    def lapse(self) -> MainstemError | None:
        """Why another node may serve queues by now; None while this node's lease is valid."""
        ...

    def find(self, namespace: str) -> PublishTarget | None:
        """The virtual host; None if nothing was declared in it.

        Raises:
            Unavailable: queues are not served now.
        """
        ...


class QueuePublisher:
    """One source of messages. ``is_forced``: full queues do not refuse its messages.

    The virtual host is looked up for each message: it may have been reloaded since the last one.
    """

    __slots__ = (
        "__weakref__",
        "_context",
        "_flow",
        "_namespace",
        "_routed",
        "_settled",
        "_unrouted",
        "is_forced",
        "parked",
    )

    def __init__(
        self,
        context: PublisherContext,
        namespace: str,
        settled: OnSettled,
        flow: OnFlow | None = None,
        *,
        is_forced: bool = False,
    ) -> None:
        self._context = context
        self._namespace = namespace
        self._settled: OnSettled | None = settled
        self._flow = flow
        self._routed: list[int] = []
        self._unrouted: list[int] = []
        self.is_forced = is_forced
        # Messages that wait for space in a queue that blocks its publishers.
        self.parked = 0

    @property
    def is_blocked(self) -> bool:
        """Whether the session should stop reading."""
        return self.parked > 0 or self._context.is_slow

    def publish(self, exchange: str, message: Message, routing: Routing, token: int = -1) -> None:
        """Publish; see the broker API."""
        self._context.counts.published += 1
        try:
            host = self._context.find(self._namespace)
        except Unavailable as error:
            self.refuse((token,), error)
            return
        try:
            self._publish(host, exchange, message, routing, token)
        except InvalidRequest:
            # Another node may have the exchange: only a node with a valid lease can decide.
            lapse = self._context.lapse
            if lapse is None:
                raise
            self.refuse((token,), lapse)

    def _publish(
        self,
        host: PublishTarget | None,
        exchange: str,
        message: Message,
        routing: Routing,
        token: int,
    ) -> None:
        if host is not None:
            host.publish(self, exchange, message, routing, token)
        elif exchange in PREDECLARED_NAMES:
            self.unrouted(token)
        else:
            raise InvalidRequest(
                ErrorCode.UNKNOWN_EXCHANGE, f"no exchange '{exchange}'", subject=exchange
            )

    def publish_many(
        self, exchange: str, messages: Sequence[Message], routing: Routing, first: int
    ) -> None:
        """Publish messages with the same routing; see the broker API."""
        host = None
        with contextlib.suppress(Unavailable):  # each is refused below
            host = self._context.find(self._namespace)
        if host is not None and host.publish_many(self, exchange, messages, routing, first):
            self._context.counts.published += len(messages)
            return
        for token, message in enumerate(messages, first):
            self.publish(exchange, message, routing, token)

    def close(self) -> None:
        """Stop reporting results."""
        self._settled = self._flow = None

    def note(self, tokens: Sequence[int], *, is_routed: bool) -> None:
        """Collect committed messages for the next ``notify``."""
        (self._routed if is_routed else self._unrouted).extend(tokens)

    def notify(self) -> None:
        """Report the collected messages to the publisher."""
        routed, unrouted = self._routed, self._unrouted
        counts = self._context.counts
        if routed:
            self._routed = []
            if self._settled is not None:
                self._settled(routed, ROUTED)
        if unrouted:
            counts.unroutable += len(unrouted)
            self._unrouted = []
            if self._settled is not None:
                self._settled(unrouted, UNROUTED)

    def unrouted(self, token: int) -> None:
        """Report an unroutable message; refuse it if another node may have newer state."""
        lapse = self._context.lapse
        if lapse is not None:
            self.refuse((token,), lapse)
            return
        self._context.counts.unroutable += 1
        if token >= 0 and self._settled is not None:
            self._settled((token,), NOBODY)

    def refuse(self, tokens: Sequence[int], error: MainstemError) -> None:
        """Report messages that were not stored."""
        self._context.counts.refused += len(tokens)
        awaited = [token for token in tokens if token >= 0]
        if awaited and self._settled is not None:
            self._settled(awaited, Published(PublishStatus.REFUSED, is_routed=False, error=error))

    def give_up(self, tokens: Sequence[int], error: MainstemError) -> None:
        """Report messages whose outcome is unknown."""
        self._context.counts.refused += len(tokens)
        awaited = [token for token in tokens if token >= 0]
        if awaited and self._settled is not None:
            self._settled(awaited, Published(PublishStatus.UNKNOWN, is_routed=False, error=error))

    def park(self) -> None:
        """Count one more parked message."""
        self.parked += 1
        if self.parked == 1 and self._flow is not None:
            self._flow(False)  # noqa: FBT003 - the callback's only argument

    def unpark(self) -> None:
        """Count one parked message less."""
        self.parked -= 1
        if not self.parked and self._flow is not None:
            self._flow(not self._context.is_slow)

    def on_pressure(self, *, is_slow: bool) -> None:
        """Pause or resume the publisher after memory pressure changed."""
        if self._flow is not None and not self.parked:
            self._flow(not is_slow)
