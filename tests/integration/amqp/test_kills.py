"""A publisher with confirms, consumers, and a node that is killed again and again.

What must hold whenever the node dies: a confirmed message is delivered, until somebody settled it;
what was settled, and known to be, does not come back; what is delivered twice says so.
"""

import random
import threading
import time
from collections import Counter
from typing import Any

import pika
import pytest
from pika.exceptions import AMQPError
from tests.integration.amqp.conftest import dial

from mainstem.testing.local_node import LocalNode

KILLS = 3
QUEUES = 3


class Publisher(threading.Thread):
    """Publishes numbers one after the other and remembers which were confirmed."""

    def __init__(self, node: LocalNode, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._node = node
        self._stop_asked = stop
        self.confirmed: set[int] = set()
        self.number = 0

    def run(self) -> None:
        while not self._stop_asked.is_set():
            try:
                self._publish()
            except (AMQPError, OSError):
                time.sleep(0.05)

    def _publish(self) -> None:
        connection = dial(self._node, heartbeat=5, socket_timeout=3, blocked_connection_timeout=5)
        channel = connection.channel()
        channel.confirm_delivery()
        while not self._stop_asked.is_set():
            self.number += 1
            number = self.number
            channel.basic_publish(
                "killed",
                f"to.{number % QUEUES}",
                str(number).encode(),
                pika.BasicProperties(delivery_mode=2),
                mandatory=True,
            )
            self.confirmed.add(number)
        connection.close()


class Worker(threading.Thread):
    """Takes messages of one queue and settles most of them."""

    def __init__(self, node: LocalNode, queue: str, stop: threading.Event, seed: int) -> None:
        super().__init__(daemon=True)
        self._node = node
        self._queue = queue
        self._stop_asked = stop
        self._chance = random.Random(seed)
        self.seen: Counter[int] = Counter()
        self.unmarked: Counter[int] = Counter()
        self.settled: set[int] = set()
        self.settled_again: set[int] = set()

    def run(self) -> None:
        while not self._stop_asked.is_set():
            try:
                self._work()
            except (AMQPError, OSError):
                time.sleep(0.05)

    def _work(self) -> None:
        connection = dial(self._node, heartbeat=5, socket_timeout=3)
        channel = connection.channel()
        channel.basic_qos(prefetch_count=20)
        pending: list[int] = []
        for method, _, body in channel.consume(self._queue, inactivity_timeout=0.2):
            if method is not None:
                self._take(channel, method, int(body), pending)
            if len(pending) >= 10 or (method is None and pending):
                # An answer on the channel shows that what was settled before it was heard.
                channel.queue_declare(self._queue, passive=True)
                self.settled.update(pending)
                pending.clear()
            if self._stop_asked.is_set():
                break
        channel.cancel()
        connection.close()

    def _take(self, channel: Any, method: Any, number: int, pending: list[int]) -> None:
        self.seen[number] += 1
        self.unmarked[number] += not method.redelivered
        if number in self.settled:
            self.settled_again.add(number)
        if self._chance.random() < 0.1:
            channel.basic_nack(method.delivery_tag, requeue=True)
        else:
            channel.basic_ack(method.delivery_tag)
            pending.append(number)


@pytest.mark.slow
def test_no_kill_loses_what_was_confirmed(own_amqp_node: LocalNode) -> None:
    node = own_amqp_node
    with dial(node) as connection:
        channel = connection.channel()
        channel.exchange_declare("killed", "topic", durable=True)
        for number in range(QUEUES):
            channel.queue_declare(f"killed-{number}", durable=True)
            channel.queue_bind(f"killed-{number}", "killed", f"to.{number}")
    stop_publishing, stop_working = threading.Event(), threading.Event()
    publisher = Publisher(node, stop_publishing)
    workers = [
        Worker(node, f"killed-{number}", stop_working, seed=number) for number in range(QUEUES)
    ]
    for thread in (publisher, *workers):
        thread.start()
    chance = random.Random(7)
    for _ in range(KILLS):
        time.sleep(1.0 + chance.random())
        node.kill9()
        node.start()
    time.sleep(1.5)
    stop_publishing.set()
    publisher.join(30)

    def missing() -> set[int]:
        return publisher.confirmed - {number for worker in workers for number in worker.seen}

    until = time.monotonic() + 30
    while missing() and time.monotonic() < until:
        time.sleep(0.2)
    time.sleep(0.5)
    stop_working.set()
    for worker in workers:
        worker.join(30)

    assert len(publisher.confirmed) > 100
    assert not missing()
    assert max(publisher.confirmed) <= publisher.number
    for worker in workers:
        assert all(count <= 1 for count in worker.unmarked.values())
        assert not worker.settled_again
