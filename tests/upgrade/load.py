"""Clients of three protocols that write and read all the while, and what they were promised.

Each writer counts upwards and remembers what was confirmed; each reader remembers what it got. An
error of a client other than one that a retry mends is kept and fails the test.
"""

import contextlib
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence

import paho.mqtt.client as mqtt
import pika
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from paho.mqtt.enums import CallbackAPIVersion
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError, UnroutableError

Addresses = Callable[[], Sequence[tuple[str, int]]]

TOPIC, QUEUE, FILTER = "orders", "jobs", "sensors/#"
PAUSE_S = 0.02
# Connections that end are what this is about; pika tells each with a traceback.
logging.getLogger("pika").setLevel(logging.CRITICAL)
RETRY_S = 0.2


class Load:
    """What all of them share: threads, confirmed values, received ones, errors."""

    def __init__(self) -> None:
        self.confirmed: set[int] = set()
        self.received: Counter[int] = Counter()
        self.errors: list[str] = []
        self._writing = threading.Event()
        self._reading = threading.Event()
        self._threads = [
            threading.Thread(target=self._guarded, args=(run,), daemon=True)
            for run in (self.write, self.read)
        ]

    def start(self) -> None:
        """Begin to write and to read."""
        for thread in self._threads:
            thread.start()

    def write(self) -> None:
        """Write until ``_writing`` is set."""
        raise NotImplementedError

    def read(self) -> None:
        """Read until ``_reading`` is set."""
        raise NotImplementedError

    def missing(self) -> set[int]:
        """What was confirmed and not received so far."""
        return self.confirmed - self.received.keys()

    def finish(self, *, timeout_s: float) -> None:
        """Stop writing, and wait until all that was confirmed has been read."""
        self._writing.set()
        self._threads[0].join(timeout_s)
        give_up = time.monotonic() + timeout_s
        while self.missing() and not self.errors and time.monotonic() < give_up:
            time.sleep(0.05)
        self._reading.set()
        self._threads[1].join(timeout_s)
        if any(thread.is_alive() for thread in self._threads):
            self.errors.append(f"{type(self).__name__} does not end")

    def _guarded(self, run: Callable[[], None]) -> None:
        try:
            run()
        except Exception as error:  # noqa: BLE001 - it would end with the thread, unseen
            self.errors.append(f"{type(self).__name__}.{run.__name__}: {error!r}")


class KafkaLoad(Load):
    """An idempotent producer, and a member of a consumer group."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self._bootstrap = bootstrap

    def write(self) -> None:
        """See ``Load``."""
        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True,
                             "linger.ms": 5, "message.timeout.ms": 120_000})  # fmt: skip

        def delivered(error: KafkaError | None, message: Message) -> None:
            value = int(message.value() or b"")
            if error is None:
                self.confirmed.add(value)
            else:
                self.errors.append(f"produce of {value}: {error}")

        number = 0
        while not self._writing.wait(PAUSE_S):
            for _ in range(5):
                producer.produce(TOPIC, str(number), str(number % 7), on_delivery=delivered)
                number += 1
            producer.poll(0)
        left = producer.flush(120)
        if left:
            self.errors.append(f"{left} records were never answered")

    def read(self) -> None:
        """See ``Load``."""
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "readers",
                             "auto.offset.reset": "earliest", "enable.auto.commit": False,
                             "session.timeout.ms": 10_000})  # fmt: skip
        consumer.subscribe([TOPIC])
        seen = 0
        while not self._reading.is_set():
            message = consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                if error.fatal() or not error.retriable():
                    self.errors.append(f"consume: {error}")
                continue
            self.received[int(message.value() or b"")] += 1
            seen += 1
            if seen % 200 == 0:
                self._commit(consumer)
        consumer.close()

    def _commit(self, consumer: Consumer) -> None:
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as refused:
            # A commit that a rebalance or a fail-over overtakes is made again later.
            error = refused.args[0]
            if error.fatal():
                self.errors.append(f"commit: {error}")

    def stored(self, *, timeout_s: float) -> Counter[int]:
        """Everything in the topic, read from its beginning."""
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "auditor",
                             "auto.offset.reset": "earliest"})  # fmt: skip
        consumer.subscribe([TOPIC])
        found: Counter[int] = Counter()
        give_up = time.monotonic() + timeout_s
        while self.confirmed - found.keys() and time.monotonic() < give_up:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                found[int(message.value() or b"")] += 1
        consumer.close()
        return found


class AmqpLoad(Load):
    """A publisher with confirms and a consumer with acknowledgements; both go to the next node."""

    def __init__(self, addresses: Addresses) -> None:
        super().__init__()
        self._addresses = addresses

    def write(self) -> None:
        """See ``Load``."""
        number = 0
        while not self._writing.is_set():
            with _Channel(self._addresses) as channel:
                channel.confirm_delivery()
                while not self._writing.wait(PAUSE_S):
                    # Raises unless it is confirmed; then the same number is published again.
                    channel.basic_publish("", QUEUE, str(number).encode(), mandatory=True)
                    self.confirmed.add(number)
                    number += 1

    def read(self) -> None:
        """See ``Load``."""
        while not self._reading.is_set():
            with _Channel(self._addresses) as channel:
                channel.basic_qos(prefetch_count=50)
                for frame, _, body in channel.consume(QUEUE, inactivity_timeout=0.2):
                    if frame is not None:
                        self.received[int(body)] += 1
                        channel.basic_ack(frame.delivery_tag)
                    if self._reading.is_set():
                        break


class _Channel:
    """A channel of some node that answers; errors of a connection that ends are swallowed."""

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses

    def __enter__(self) -> BlockingChannel:
        give_up = time.monotonic() + 60
        while True:
            for host, port in self._addresses():
                try:
                    return self._open(host, port)
                except (AMQPError, OSError):
                    if time.monotonic() > give_up:
                        raise
            time.sleep(RETRY_S)

    def _open(self, host: str, port: int) -> BlockingChannel:
        parameters = pika.ConnectionParameters(host, port, socket_timeout=5, heartbeat=5)
        self._connection = pika.BlockingConnection(parameters)
        try:
            channel = self._connection.channel()
            channel.queue_declare(QUEUE, durable=True)
        except BaseException:
            self._close()
            raise
        return channel

    def _close(self) -> None:
        with contextlib.suppress(AMQPError, OSError):
            if self._connection.is_open:
                self._connection.close()

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> bool:
        self._close()
        if kind is not None and issubclass(kind, AMQPError | OSError | UnroutableError):
            time.sleep(RETRY_S)
            return True
        return False


class MqttLoad(Load):
    """A publisher and a subscriber with sessions of their own, QoS 1; both connect again."""

    def __init__(self, writes_to: tuple[str, int], reads_from: tuple[str, int]) -> None:
        super().__init__()
        self._writes_to, self._reads_from = writes_to, reads_from
        self.subscribed = threading.Event()

    def _client(self, name: str) -> mqtt.Client:
        client = mqtt.Client(
            CallbackAPIVersion.VERSION2, name, clean_session=False, protocol=mqtt.MQTTv311
        )
        client.reconnect_delay_set(1, 1)
        return client

    def write(self) -> None:
        """See ``Load``."""
        client = self._client("writer")
        # Only noted here: paho holds its lock of outgoing messages during the call.
        acknowledged: deque[int] = deque()
        client.on_publish = lambda _c, _u, mid, _r, _p: acknowledged.append(mid)
        client.connect(*self._writes_to, keepalive=5)
        client.loop_start()
        assert self.subscribed.wait(60), "nobody subscribes"
        numbers: dict[int, int] = {}

        def settle() -> None:
            while acknowledged:
                self.confirmed.add(numbers.pop(acknowledged.popleft()))

        number = 0
        while not self._writing.wait(PAUSE_S):
            numbers[client.publish("sensors/a", str(number), qos=1).mid] = number
            number += 1
            settle()
        give_up = time.monotonic() + 60
        while numbers and time.monotonic() < give_up:
            time.sleep(0.05)
            settle()
        if numbers:
            self.errors.append(f"{len(numbers)} publishes were never confirmed")
        client.loop_stop()
        client.disconnect()

    def read(self) -> None:
        """See ``Load``."""
        client = self._client("reader")

        def connected(c: mqtt.Client, *_: object) -> None:
            c.subscribe(FILTER, qos=1)

        def got(_c: object, _u: object, message: mqtt.MQTTMessage) -> None:
            self.received[int(message.payload)] += 1

        client.on_connect = connected
        client.on_subscribe = lambda *_: self.subscribed.set()
        client.on_message = got
        client.connect(*self._reads_from, keepalive=5)
        client.loop_start()
        self._reading.wait()
        client.loop_stop()
        client.disconnect()
