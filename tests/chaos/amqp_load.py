"""A publisher with confirms and a consumer with transactions, through whichever node answers.

The consumer acknowledges inside AMQP transactions: once ``tx.commit-ok`` has come the server has
promised that those messages never come back, which an acknowledgement alone does not say.
"""

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection
from pika.exceptions import AMQPError, NackError
from tests.chaos.history import Outcome
from tests.chaos.queue_history import Delivered, Promise, Published, QueueHistory, Settled

RATE_PER_S = 50
BATCH = 20
PAUSE_S = 0.1
DRAIN_TIMEOUT_S = 120.0
ANSWER_TIMEOUT_S = 10.0

Addresses = Callable[[], Sequence[str]]


class AmqpLoad:
    """One durable queue under load; its history is judged when the load has ended.

    Args:
        addresses: where nodes listen now; asked before every new connection.
        queue: the name of the queue.
    """

    promise = Promise()

    def __init__(self, addresses: Addresses, queue: str) -> None:
        self.history = QueueHistory(queue, "AMQP")
        self.confirmed = self.delivered = 0
        self._addresses = addresses
        self._turns = itertools.count()
        self._publishing, self._consuming = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=self._forever, args=(work, event), daemon=True)
            for work, event in (
                (self._publish, self._publishing),
                (self._consume, self._consuming),
            )
        ]
        self._declare()

    def start(self) -> None:
        """Begin to publish and to consume."""
        for thread in self._threads:
            thread.start()

    @property
    def progress(self) -> tuple[int, int]:
        """How many messages were confirmed and delivered."""
        return self.confirmed, self.delivered

    def finish(self) -> None:
        """Publish nothing more and wait until everything confirmed was delivered."""
        self._publishing.set()
        self._threads[0].join(DRAIN_TIMEOUT_S)
        deadline = time.monotonic() + DRAIN_TIMEOUT_S
        while self._missing() and time.monotonic() < deadline:
            time.sleep(PAUSE_S)
        self.stop()

    def stop(self) -> None:
        """End both threads."""
        self._publishing.set()
        self._consuming.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(DRAIN_TIMEOUT_S)

    def _missing(self) -> bool:
        seen = {event.value for event in list(self.history.events) if isinstance(event, Delivered)}
        return any(
            message.outcome is Outcome.OK and message.value not in seen
            for message in self.history.published
        )

    def _declare(self) -> None:
        give_up = time.monotonic() + DRAIN_TIMEOUT_S
        while True:
            try:
                connection = self._dial()
                connection.channel().queue_declare(self.history.queue, durable=True)
                connection.close()
            except (AMQPError, OSError) as error:
                if time.monotonic() >= give_up:
                    raise AssertionError("the queue cannot be declared") from error
                time.sleep(PAUSE_S)
            else:
                return

    def _dial(self) -> BlockingConnection:
        every = self._addresses()
        host, _, port = every[next(self._turns) % len(every)].rpartition(":")
        return BlockingConnection(
            pika.ConnectionParameters(
                host,
                int(port),
                heartbeat=4,
                socket_timeout=3,
                stack_timeout=6,
                blocked_connection_timeout=ANSWER_TIMEOUT_S,
            )
        )

    def _forever(self, work: Callable[[BlockingChannel], None], stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                connection = self._dial()
                work(connection.channel())
                connection.close()
            except (AMQPError, OSError):
                stop.wait(PAUSE_S)

    def _publish(self, channel: BlockingChannel) -> None:
        channel.confirm_delivery()
        while not self._publishing.is_set():
            message = Published("amqp", len(self.history.published))
            self.history.published.append(message)
            try:
                channel.basic_publish(
                    "",
                    self.history.queue,
                    message.value.encode(),
                    pika.BasicProperties(delivery_mode=2),
                )
            except NackError:
                message.outcome = Outcome.REFUSED
            else:
                message.outcome = Outcome.OK
                self.confirmed += 1
            self._publishing.wait(1 / RATE_PER_S)

    def _consume(self, channel: BlockingChannel) -> None:
        channel.tx_select()
        channel.basic_qos(prefetch_count=2 * BATCH)
        pending: list[tuple[Any, str]] = []
        for method, _, body in channel.consume(self.history.queue, inactivity_timeout=PAUSE_S):
            if method is not None and body is not None:
                value = body.decode()
                self.history.events.append(Delivered(value, method.redelivered))
                self.delivered += 1
                pending.append((method.delivery_tag, value))
            if pending and (method is None or len(pending) >= BATCH):
                self._settle(channel, pending)
            if self._consuming.is_set():
                break

    def _settle(self, channel: BlockingChannel, pending: list[tuple[Any, str]]) -> None:
        channel.basic_ack(pending[-1][0], multiple=True)
        channel.tx_commit()
        self.history.events.extend(Settled(value) for _, value in pending)
        pending.clear()
