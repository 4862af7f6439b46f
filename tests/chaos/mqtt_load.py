"""An MQTT publisher and a subscriber with kept sessions, through whichever node answers."""

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from paho.mqtt.client import MQTT_ERR_SUCCESS, Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion
from tests.chaos.history import Outcome
from tests.chaos.queue_history import Delivered, Promise, Published, QueueHistory

RATE_PER_S = 100
WAITING_MAX = 200
PAUSE_S = 0.1
DRAIN_TIMEOUT_S = 120.0
KEEP_ALIVE_S = 5

Addresses = Callable[[], Sequence[str]]


class MqttLoad:
    """One MQTT topic under load; its history is judged when the load has ended.

    Args:
        addresses: where nodes listen now; asked before every new connection.
        topic: the MQTT topic.
        qos: of publisher and subscriber.
    """

    # A resent message that was stored before its sender was cut off is a message of its own.
    promise = Promise(marks_redelivery=False)

    def __init__(self, addresses: Addresses, topic: str, *, qos: int) -> None:
        self.history = QueueHistory(topic, f"MQTT QoS {qos}")
        self.confirmed = 0
        self._addresses = addresses
        self._qos = qos
        self._turns = itertools.count()
        self._next_at = 0.0
        self._waiting: dict[int, Published] = {}
        self._stopping = threading.Event()
        self._publishing = threading.Event()
        self._subscribed = threading.Event()
        self._publisher = self._client(f"{topic}-publisher")
        self._publisher.on_publish = self._on_confirmed
        self._subscriber = self._client(f"{topic}-subscriber")
        self._subscriber.on_connect = self._on_connected
        self._subscriber.on_subscribe = lambda *_: self._subscribed.set()
        self._subscriber.on_message = self._on_message
        self._threads = [
            threading.Thread(target=self._forever, args=arguments, daemon=True)
            for arguments in ((self._subscriber, lambda: None), (self._publisher, self._publish))
        ]

    def start(self) -> None:
        """Subscribe, then begin to publish."""
        for thread in self._threads:
            thread.start()
            if not self._subscribed.wait(DRAIN_TIMEOUT_S):
                raise AssertionError("the MQTT subscriber could not subscribe")

    @property
    def progress(self) -> tuple[int, int]:
        """How many messages were confirmed and delivered."""
        return self.confirmed, len(self.history.events)

    def finish(self) -> None:
        """Publish nothing more and wait until everything was confirmed and delivered."""
        self._publishing.set()
        deadline = time.monotonic() + DRAIN_TIMEOUT_S
        while (self._waiting or self._missing()) and time.monotonic() < deadline:
            time.sleep(PAUSE_S)
        self.stop()

    def stop(self) -> None:
        """End both threads."""
        self._publishing.set()
        self._stopping.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(DRAIN_TIMEOUT_S)

    def _missing(self) -> bool:
        seen = {event.value for event in list(self.history.events)}
        return any(
            message.outcome is Outcome.OK and message.value not in seen
            for message in self.history.published
        )

    def _client(self, name: str) -> Client:
        client = Client(CallbackAPIVersion.VERSION2, client_id=name, clean_session=False)
        client.max_inflight_messages_set(20)
        client.connect_timeout = 3.0
        return client

    def _forever(self, client: Client, work: Callable[[], None]) -> None:
        while not self._stopping.is_set():
            every = self._addresses()
            host, _, port = every[next(self._turns) % len(every)].rpartition(":")
            try:
                client.connect(host, int(port), keepalive=KEEP_ALIVE_S)
                while not self._stopping.is_set() and client.loop(0.02) == MQTT_ERR_SUCCESS:
                    work()
            except OSError:
                pass  # the next address may answer
            self._stopping.wait(PAUSE_S)
        client.disconnect()

    def _publish(self) -> None:
        if self._publishing.is_set() or len(self._waiting) >= WAITING_MAX:
            return
        now = time.monotonic()
        if now < self._next_at or not self._publisher.is_connected():
            return
        self._next_at = now + 1 / RATE_PER_S
        message = Published("mqtt", len(self.history.published))
        self.history.published.append(message)
        sent = self._publisher.publish(self.history.queue, message.value, qos=self._qos)
        self._waiting[sent.mid] = message

    def _on_confirmed(self, _c: Any, _u: Any, mid: int, *_: Any) -> None:
        message = self._waiting.pop(mid, None)
        if message is not None:
            message.outcome = Outcome.OK
            self.confirmed += 1

    def _on_connected(self, client: Client, *_: Any) -> None:
        client.subscribe(self.history.queue, qos=self._qos)

    def _on_message(self, _c: Any, _u: Any, message: MQTTMessage) -> None:
        self.history.events.append(Delivered(message.payload.decode(), message.dup))
