"""Consuming on one channel: consumers, delivery tags, prefetch windows, settlements.

Tags count the channel's deliveries, over all its queues. The queue limits how many messages may be
unsettled (``ConsumerWindow``); this module limits how much is sent ahead to a client that reads
slowly: credit is granted for what fits into ``UNSENT_BYTES``.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import takewhile
from typing import Any, Final

from mainstem.broker.api.queues import (
    RELEASE,
    ConsumeRequest,
    ConsumerWindow,
    Delivery,
    DeliverySource,
    Settlement,
    Subscription,
)
from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.model.limits import DELIVERIES_UNSETTLED_PER_CHANNEL_MAX, MIB, QUEUE_CONSUMERS_MAX
from mainstem.protocols.amqp.channel_link import AmqpService, ChannelLink
from mainstem.protocols.amqp.content_assembly import Content
from mainstem.protocols.amqp.direct_reply import PREFIX
from mainstem.protocols.amqp.entities_service import GetResult
from mainstem.protocols.amqp.errors import (
    ACCESS_REFUSED,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    RESOURCE_ERROR,
    ChannelRefusal,
    ConnectionRefusal,
    translated,
)
from mainstem.security.quotas import FETCH_BYTES
from mainstem.wire.amqp.basic_methods import (
    BasicCancel,
    BasicConsume,
    BasicDeliver,
    BasicGetEmpty,
    BasicGetOk,
    BasicQos,
)
from mainstem.wire.amqp.fields import SHORT_TEXT_BYTES_MAX, short_text
from mainstem.wire.amqp.frames import content_frames, deliver_payload
from mainstem.wire.amqp.method_codec import encode_method

UNSENT_BYTES: Final = 4 * MIB
CREDIT_MAX: Final = 256
CREDIT_FIRST: Final = 32  # the size of messages is not known yet
RETRY_MS: Final = 10
CANCEL_NOTIFY: Final = "consumer_cancel_notify"

Held = tuple[int, DeliverySource, int]  # tag, holder, delivery number of the holder


class ChannelConsumer:
    """One consumer of the channel."""

    __slots__ = (
        "credit",
        "frame_tag",
        "is_waiting",
        "no_ack",
        "reports_failures",
        "subscription",
        "tag",
        "window",
    )  # fmt: skip

    def __init__(self, tag: str, window: ConsumerWindow, *, no_ack: bool) -> None:
        self.tag = tag
        self.frame_tag = short_text(tag)
        self.window = window
        self.no_ack = no_ack
        self.credit = CREDIT_FIRST
        self.is_waiting = False  # for the client to read what was sent
        self.reports_failures = False
        self.subscription: Subscription | None = None


class AmqpConsuming:
    """Serves the consumers of one channel: delivery tags, prefetch, settlement."""

    def __init__(self, channel: int, link: ChannelLink, service: AmqpService) -> None:
        self._channel = channel
        self._link = link
        self._service = service
        self._consumers: dict[str, ChannelConsumer] = {}
        self._unsettled: dict[int, Held] = {}
        self._tag = 0
        self._prefetch = (0, 0)
        self._shared = ConsumerWindow()
        self._is_flowing = True
        self._is_closed = False
        # Tags of cancelled consumers, whose notice is sent after a pending answer.
        self._notices: list[str] | None = None
        self._reply_name = ""

    # Consumers

    def qos(self, method: BasicQos) -> None:
        """Set the prefetch limit of new consumers, or of the whole channel."""
        if not (method.is_global or self._link.is_qos_for_channel):
            self._prefetch = (method.prefetch_count, method.prefetch_size)
            return
        self._shared.messages_max = method.prefetch_count
        self._shared.bytes_max = method.prefetch_size
        for consumer in self._consumers.values():
            if consumer.subscription is not None:
                consumer.subscription.changed()

    def consume(self, method: BasicConsume, queue: str) -> str:
        """Start a consumer; returns its tag."""
        tag = method.consumer_tag or f"amq.ctag-{self._service.new_name()}"
        self._check(method, tag)
        messages, size = self._prefetch
        consumer = ChannelConsumer(
            tag, ConsumerWindow(messages, bytes_max=size, credit=CREDIT_FIRST), no_ack=method.no_ack
        )
        request = ConsumeRequest(
            name=tag,
            connection=self._link.connection,
            no_ack=method.no_ack,
            is_exclusive=method.exclusive,
            priority=_priority(method.arguments),
            window=consumer.window,
            # Without acknowledgements nothing is unsettled, so prefetch does not apply.
            shared=None if method.no_ack else self._shared,
        )
        with _consuming(queue, self._link.namespace):
            consumer.reports_failures = self._service.queues.status(
                self._link.namespace, queue, connection=self._link.connection
            ).reports_failures
            consumer.subscription = self._service.queues.consume(
                self._link.namespace,
                queue,
                request,
                partial(self._deliver, consumer),
                partial(self._ended, consumer),
            )
        self._consumers[tag] = consumer
        return tag

    def consume_replies(self, method: BasicConsume) -> tuple[str, str]:
        """Consume direct replies; returns the consumer tag and the reply name for requests."""
        tag = method.consumer_tag or f"amq.ctag-{self._service.new_name()}"
        self._check(method, tag)
        if not method.no_ack:
            raise ChannelRefusal(PRECONDITION_FAILED, "reply consumer cannot acknowledge")
        if self._reply_name:
            raise ChannelRefusal(PRECONDITION_FAILED, "reply consumer already set")
        self._reply_name = PREFIX + self._service.new_name()
        consumer = ChannelConsumer(tag, ConsumerWindow(), no_ack=True)
        self._consumers[tag] = consumer
        self._service.replies.open(self._reply_name, partial(self._replied, consumer))
        return tag, self._reply_name

    def cancel(self, tag: str) -> None:
        """Cancel a consumer; it may still settle its deliveries."""
        consumer = self._consumers.pop(tag, None)
        if consumer is None:
            return
        if consumer.subscription is not None:
            consumer.subscription.cancel()
        else:
            self._service.replies.close(self._reply_name)
            self._reply_name = ""

    def flow(self, *, active: bool) -> None:
        """Resume deliveries to the client, or stop them."""
        if active == self._is_flowing:
            return
        self._is_flowing = active
        for consumer in self._consumers.values():
            if consumer.subscription is None:
                continue
            if not active:
                consumer.window.credit = consumer.credit = 0
                consumer.subscription.changed()
            else:
                self._replenish(consumer, CREDIT_FIRST)

    def close(self) -> None:
        """Close the channel: unsettled messages return to their positions in the queues."""
        self._is_closed = True
        for source, numbers in _by_source(self._unsettled.values()):
            source.settle(numbers, RELEASE)
        self._unsettled.clear()
        for tag in list(self._consumers):
            consumer = self._consumers.pop(tag)
            if consumer.subscription is not None:
                consumer.subscription.close()
        if self._reply_name:
            self._service.replies.close(self._reply_name)

    # Settlements

    def take(self, tag: int, *, multiple: bool) -> list[Held]:
        """Remove and return the deliveries that a tag settles; 0 with ``multiple`` means all."""
        unsettled = self._unsettled
        if not multiple:
            held = unsettled.pop(tag, None)
            if held is None:
                raise _unknown(tag)
            return [held]
        taken = list(unsettled) if tag == 0 else list(takewhile(tag.__ge__, unsettled))
        if (tag and not taken) or tag > self._tag:
            raise _unknown(tag)
        return [unsettled.pop(each) for each in taken]

    def keep(self, held: Sequence[Held]) -> None:
        """Mark deliveries as unsettled again."""
        self._unsettled |= {each[0]: each for each in held}
        self._unsettled = dict(sorted(self._unsettled.items()))

    def settle(self, held: Sequence[Held], how: Settlement) -> None:
        """Settle deliveries."""
        if len(held) == 1:
            [(_, source, number)] = held
            source.settle((number,), how)
            return
        for source, numbers in _by_source(held):
            source.settle(numbers, how)

    def recover(self) -> None:
        """Return all unsettled messages, so that they are delivered again."""
        held = list(self._unsettled.values())
        self._unsettled.clear()
        self.settle(held, RELEASE)

    # Deliveries

    def got(self, found: GetResult, *, no_ack: bool) -> None:
        """Send the answer to ``basic.get``."""
        delivery, left, reports_failures = found
        link = self._link
        if delivery is None:
            if not self._is_closed:
                link.method(self._channel, BasicGetEmpty())
            return
        if self._is_closed:
            if not no_ack:
                delivery.source.settle((delivery.number,), RELEASE)
            return
        tag = self._tagged(delivery, no_ack=no_ack)
        method = BasicGetOk(
            delivery_tag=tag,
            redelivered=delivery.redelivered,
            exchange=delivery.exchange,
            routing_key=_key_text(delivery.message.key),
            message_count=left,
        )
        now_ms = self._service.clock.wall_ms()
        failures = delivery.failures if reports_failures else 0
        link.write(self._content(encode_method(method), delivery, now_ms, failures))

    def _deliver(self, consumer: ChannelConsumer, deliveries: Sequence[Delivery]) -> None:
        if self._is_closed:
            return  # closing the channel returned the message
        no_ack, frame_tag = consumer.no_ack, consumer.frame_tag
        reports_failures = consumer.reports_failures
        parts = []
        now_ms = self._service.clock.wall_ms()
        exchange, exchange_text = "", short_text("")
        for delivery in deliveries:
            if delivery.exchange != exchange:
                exchange, exchange_text = delivery.exchange, short_text(delivery.exchange)
            payload = deliver_payload(
                frame_tag,
                self._tagged(delivery, no_ack=no_ack),
                exchange_text,
                _short_key(delivery.message.key),
                redelivered=delivery.attempt > 1,
            )
            failures = delivery.failures if reports_failures else 0
            parts.append(self._content(payload, delivery, now_ms, failures))
        data = b"".join(parts)
        self._link.write(data)
        consumer.credit -= len(deliveries)
        size = len(data) // len(deliveries) or 1
        wanted = max(1, min(CREDIT_MAX, UNSENT_BYTES // size))
        wait_ms = self._link.charge(FETCH_BYTES, len(data))
        again = partial(self._replenish, consumer, wanted)
        if wait_ms:
            self._link.runner.later(wait_ms, again)
        else:
            self._link.runner.soon(again)

    def _replenish(self, consumer: ChannelConsumer, wanted: int) -> None:
        """Grant credit, once the client has read enough of what was sent."""
        subscription = consumer.subscription
        if self._is_closed or subscription is None or not self._is_flowing:
            return
        if (
            self._link.unsent_bytes() > UNSENT_BYTES
            or len(self._unsettled) >= DELIVERIES_UNSETTLED_PER_CHANNEL_MAX
        ):
            self._link.runner.later(RETRY_MS, partial(self._replenish, consumer, wanted))
            return
        granted = wanted - consumer.credit
        if granted > 0 and self._consumers.get(consumer.tag) is consumer:
            consumer.credit += granted
            subscription.credit(granted)

    def _replied(self, consumer: ChannelConsumer, content: Content) -> bool:
        """Send a direct reply to the client; False if the client reads too slowly."""
        if self._link.unsent_bytes() > UNSENT_BYTES:
            return False
        self._tag += 1
        payload = encode_method(
            BasicDeliver(
                consumer_tag=consumer.tag,
                delivery_tag=self._tag,
                exchange=content.publish.exchange,
                routing_key=content.publish.key,
            )
        )
        self._link.write(
            content_frames(
                self._channel, payload, content.properties, content.body, self._link.frame_max
            )
        )
        return True

    def _tagged(self, delivery: Delivery, *, no_ack: bool) -> int:
        self._tag = tag = self._tag + 1
        if not no_ack:
            self._unsettled[tag] = (tag, delivery.source, delivery.number)
        return tag

    def _content(self, payload: bytes, delivery: Delivery, now_ms: int, failures: int) -> bytes:
        message = delivery.message
        properties = self._service.converter.properties_of(message, now_ms, failures)
        body = message.value or b""
        return content_frames(self._channel, payload, properties, body, self._link.frame_max)

    def _ended(self, consumer: ChannelConsumer, _error: MainstemError | None) -> None:
        """Remove a consumer whose queue is gone or moved; notify the client if it supports that."""
        if self._is_closed or self._consumers.get(consumer.tag) is not consumer:
            return
        del self._consumers[consumer.tag]
        if CANCEL_NOTIFY not in self._link.capabilities:
            return
        if self._notices is not None:
            self._notices.append(consumer.tag)
        else:
            self._link.method(self._channel, BasicCancel(consumer_tag=consumer.tag, nowait=True))

    def waits(self, *, is_waiting: bool) -> None:
        """Hold back cancel notices while an answer is pending; send them after it."""
        notices, self._notices = self._notices or [], [] if is_waiting else None
        for tag in notices if not self._is_closed else ():
            self._link.method(self._channel, BasicCancel(consumer_tag=tag, nowait=True))

    def _check(self, method: BasicConsume, tag: str) -> None:
        if tag in self._consumers:
            raise ConnectionRefusal(NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'")
        if method.no_local:
            raise ConnectionRefusal(NOT_IMPLEMENTED, "no_local=true")
        if len(self._consumers) >= QUEUE_CONSUMERS_MAX:
            raise ConnectionRefusal(RESOURCE_ERROR, "too many consumers on one channel")


@contextmanager
def _consuming(queue: str, namespace: str) -> Iterator[None]:
    try:
        yield
    except MainstemError as error:
        if error.code is ErrorCode.RESOURCE_IN_USE:
            raise ChannelRefusal(
                ACCESS_REFUSED, f"queue '{queue}' in vhost '{namespace}' in exclusive use"
            ) from error
        raise translated(error, "queue", queue, namespace) from error


def _priority(arguments: dict[str, Any]) -> int:
    priority = arguments.get("x-priority", 0)
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise ChannelRefusal(PRECONDITION_FAILED, "invalid arg 'x-priority': not an integer")
    return priority


def _by_source(held: Iterable[Held]) -> list[tuple[DeliverySource, list[int]]]:
    grouped: dict[int, tuple[DeliverySource, list[int]]] = {}
    for _, source, number in held:
        grouped.setdefault(id(source), (source, []))[1].append(number)
    return list(grouped.values())


def _unknown(tag: int) -> ChannelRefusal:
    return ChannelRefusal(PRECONDITION_FAILED, f"unknown delivery tag {tag}")


def _short_key(key: bytes | None) -> bytes:
    """The routing key for a frame; keys of other protocols may be no text or too long for AMQP."""
    if key is None:
        return b"\x00"
    if len(key) <= SHORT_TEXT_BYTES_MAX and key.isascii():
        return bytes((len(key),)) + key
    return short_text(_key_text(key))


def _key_text(key: bytes | None) -> str:
    if key is None:
        return ""
    raw = key.decode(errors="replace").encode()[:SHORT_TEXT_BYTES_MAX]
    return raw.decode(errors="ignore")
