"""An MQTT publisher and a subscriber with kept sessions, through whichever node answers.

When a delivery is settled, so that the message must not come back:

QoS 1   PUBLISH ─▶ PUBACK, and later on this connection SUBSCRIBE ─▶ SUBACK
QoS 2   PUBLISH ─▶ PUBREC ─▶ PUBREL

Nothing answers a PUBACK. The subscriber therefore repeats its subscription every now and then: the
session is stored before SUBACK, and with it whatever the server had been sent before. PUBREL says
that the PUBREC is stored; paho hands a message of QoS 2 over only then, so that a PUBLISH that is
repeated with the same packet id before it is one delivery.
"""

import itertools
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from paho.mqtt.client import MQTT_ERR_SUCCESS, Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion
from tests.chaos.history import Outcome
from tests.chaos.queue_history import Delivered, Promise, Published, QueueHistory, Settled

RATE_PER_S = 100
WAITING_MAX = 200
PAUSE_S = 0.1
DRAIN_TIMEOUT_S = 120.0
KEEP_ALIVE_S = 5
SETTLE_EVERY_S = 1.0
# What paho's log says of every PUBLISH, the repeated ones too.
_SENDING = re.compile(r"Sending PUBLISH \(d\d, q[12], r\d, m(\d+)\)")

Addresses = Callable[[], Sequence[str]]


class MqttLoad:
    """One MQTT topic under load; its history is judged when the load has ended.

    Args:
        addresses: where nodes listen now; asked before every new connection.
        topic: the MQTT topic.
        qos: of publisher and subscriber.
    """

    def __init__(self, addresses: Addresses, topic: str, *, qos: int) -> None:
        self.history = QueueHistory(topic, f"MQTT QoS {qos}")
        # A node that takes sessions over does not know what of QoS 1 was under way.
        self.promise = Promise(exactly_once=qos == 2, marks_redelivery=False)
        self.confirmed = self.delivered = 0
        self._addresses = addresses
        self._qos = qos
        self._turns = itertools.count()
        self._next_at = 0.0
        self._waiting: dict[int, Published] = {}
        self._sends: Counter[int] = Counter()
        self._acknowledged: list[str] = []  # of QoS 1, on this connection, not confirmed
        self._asked: dict[int, list[str]] = {}  # what a SUBACK is to confirm, by packet id
        self._ask_at = 0.0
        self._stopping = threading.Event()
        self._publishing = threading.Event()
        self._subscribed = threading.Event()
        self._publisher = self._client(f"{topic}-publisher")
        self._publisher.on_publish = self._on_confirmed
        self._publisher.on_log = self._on_log
        self._subscriber = self._client(f"{topic}-subscriber")
        self._subscriber.on_connect = self._on_connected
        self._subscriber.on_subscribe = self._on_subscribed
        self._subscriber.on_message = self._on_message
        self._threads = [
            threading.Thread(target=self._forever, args=arguments, daemon=True)
            for arguments in ((self._subscriber, self._settle), (self._publisher, self._publish))
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
        return self.confirmed, self.delivered

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
        for mid, message in self._waiting.items():
            message.sends = max(1, self._sends[mid])

    def _missing(self) -> bool:
        seen = {event.value for event in list(self.history.events) if isinstance(event, Delivered)}
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

    def _on_log(self, _c: Any, _u: Any, _level: int, text: str) -> None:
        if (sending := _SENDING.match(text)) is not None:
            self._sends[int(sending.group(1))] += 1

    def _on_confirmed(self, _c: Any, _u: Any, mid: int, *_: Any) -> None:
        message = self._waiting.pop(mid, None)
        sends = self._sends.pop(mid, 1)
        if message is not None:
            message.sends = sends
            message.outcome = Outcome.OK
            self.confirmed += 1

    def _on_connected(self, *_: Any) -> None:
        # What was acknowledged on another connection may not have reached the server.
        self._acknowledged.clear()
        self._asked.clear()
        self._ask()

    def _settle(self) -> None:
        if self._acknowledged and time.monotonic() >= self._ask_at:
            self._ask()

    def _ask(self) -> None:
        """Subscribe again: the answer confirms what was acknowledged before."""
        self._ask_at = time.monotonic() + SETTLE_EVERY_S
        mid = self._subscribe()
        if mid is not None:
            self._asked[mid], self._acknowledged = self._acknowledged, []

    def _subscribe(self) -> int | None:
        return self._subscriber.subscribe(self.history.queue, qos=self._qos)[1]

    def _on_subscribed(self, _c: Any, _u: Any, mid: int, *_: Any) -> None:
        self._subscribed.set()
        self.history.events.extend(Settled(value) for value in self._asked.pop(mid, ()))

    def _on_message(self, _c: Any, _u: Any, message: MQTTMessage) -> None:
        value = message.payload.decode()
        self.history.events.append(Delivered(value, message.dup))
        self.delivered += 1
        if self._qos == 2:
            self.history.events.append(Settled(value))
        else:
            self._acknowledged.append(value)
