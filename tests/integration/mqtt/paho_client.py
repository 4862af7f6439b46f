"""paho-mqtt as tests want it: every step waits for its answer, what arrives can be taken."""

import contextlib
import queue
import time
from typing import Any, NamedTuple

from paho.mqtt.client import Client, MQTTMessage, MQTTv5, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

WAIT_S = 15.0


class Got(NamedTuple):
    """A message that arrived."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    dup: bool
    properties: Any


def properties(packet: int, **told: Any) -> Properties:
    """Properties by their names in paho."""
    made = Properties(packet)  # type: ignore[no-untyped-call]
    for name, value in told.items():
        setattr(made, name, value)
    return made


class PahoClient:
    """One client and what it received."""

    def __init__(self, address: str, client_id: str = "", **options: Any) -> None:
        self.host, _, port = address.rpartition(":")
        self.port = int(port)
        self.version = options.pop("version", MQTTv5)
        self._clean = options.pop("clean", True)
        self._told = options.pop("connect_properties", {})
        self._keep_alive_s = options.pop("keep_alive_s", 60)
        will = options.pop("will", None)
        login = options.pop("login", None)
        manual_ack = options.pop("manual_ack", False)
        extra = {} if self.version == MQTTv5 else {"clean_session": self._clean}
        self.client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            protocol=self.version,
            manual_ack=manual_ack,
            **extra,
            **options,
        )
        if will is not None:
            self.client.will_set(**will)
        if login is not None:
            self.client.username_pw_set(*login)
        self.inbox: queue.Queue[Got] = queue.Queue()
        self.events: queue.Queue[tuple[str, Any]] = queue.Queue()
        self.held: list[MQTTMessage] = []
        self.connack: Any = None
        self.session_present = False
        self._listen()

    def _listen(self) -> None:
        client = self.client

        def on_message(_client: Any, _user: Any, message: MQTTMessage) -> None:
            self.held.append(message)
            self.inbox.put(
                Got(
                    message.topic,
                    bytes(message.payload),
                    message.qos,
                    bool(message.retain),
                    bool(message.dup),
                    getattr(message, "properties", None),
                )
            )

        def on_connect(_c: Any, _u: Any, flags: Any, reason: Any, told: Any) -> None:
            self.connack, self.session_present = told, flags.session_present
            self.events.put(("connect", reason))

        def on_disconnect(_c: Any, _u: Any, _flags: Any, reason: Any, _told: Any) -> None:
            self.events.put(("disconnect", reason))

        def on_subscribe(_c: Any, _u: Any, _id: int, reasons: Any, _told: Any) -> None:
            self.events.put(("subscribe", [reason.value for reason in reasons]))

        def on_unsubscribe(_c: Any, _u: Any, _id: int, reasons: Any, _told: Any) -> None:
            self.events.put(("unsubscribe", [reason.value for reason in reasons]))

        client.on_message = on_message
        client.on_connect = on_connect
        client.on_disconnect = on_disconnect
        client.on_subscribe = on_subscribe
        client.on_unsubscribe = on_unsubscribe

    def connect(self, *, port: int | None = None, starts: bool = True) -> "PahoClient":
        """Connect and wait for the answer."""
        self.port = port or self.port
        told: dict[str, Any] = {}
        if self.version == MQTTv5:
            told["clean_start"] = self._clean
            if self._told:
                told["properties"] = properties(PacketTypes.CONNECT, **self._told)
        self.client.connect(self.host, self.port, self._keep_alive_s, **told)
        self.client.loop_start()
        if starts:
            reason = self.event("connect")
            assert not reason.is_failure, reason
        return self

    def event(self, name: str) -> Any:
        """What the next event of that name brought."""
        until = time.monotonic() + WAIT_S
        while True:
            try:
                found, value = self.events.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no {name} came") from None
            if found == name:
                return value

    def subscribe(self, text: str, qos: int = 1, **options: Any) -> list[int]:
        """Subscribe; the reasons."""
        told = options.pop("properties", None)
        if self.version == MQTTv5:
            self.client.subscribe(text, options=SubscribeOptions(qos, **options), properties=told)
        else:
            self.client.subscribe(text, qos)
        reasons: list[int] = self.event("subscribe")
        return reasons

    def unsubscribe(self, text: str) -> list[int]:
        """Unsubscribe; the reasons."""
        self.client.unsubscribe(text)
        reasons: list[int] = self.event("unsubscribe")
        return reasons

    def publish(self, topic: str, payload: bytes, qos: int = 1, **options: Any) -> None:
        """Publish and wait until it is acknowledged."""
        told = options.pop("told", None)
        if told:
            options["properties"] = properties(PacketTypes.PUBLISH, **told)
        info = self.client.publish(topic, payload, qos, **options)
        info.wait_for_publish(WAIT_S)
        assert info.is_published()

    def take(self, count: int = 1, *, within_s: float = WAIT_S) -> list[Got]:
        """So many messages, in their order."""
        until = time.monotonic() + within_s
        found: list[Got] = []
        while len(found) < count:
            try:
                found.append(self.inbox.get(timeout=max(0.0, until - time.monotonic())))
            except queue.Empty:
                raise AssertionError(f"{len(found)} of {count} messages came: {found}") from None
        return found

    def payloads(self, count: int = 1) -> list[bytes]:
        """The payloads of so many messages."""
        return [got.payload for got in self.take(count)]

    def nothing(self, *, for_s: float = 0.3) -> bool:
        """Whether nothing comes for a while."""
        with contextlib.suppress(queue.Empty):
            self.inbox.get(timeout=for_s)
            return False
        return True

    def vanish(self) -> None:
        """Go without a word."""
        self.client.loop_stop()
        sock = self.client.socket()
        if sock is not None:
            sock.close()
        self.client._sock = None  # paho has no way to be rude

    def disconnect(self, **told: Any) -> None:
        """Say goodbye."""
        reason = told.pop("reason", None)
        if self.version == MQTTv5:
            made = properties(PacketTypes.DISCONNECT, **told) if told else None
            self.client.disconnect(reasoncode=reason, properties=made)
        else:
            self.client.disconnect()
        self.client.loop_stop()

    def close(self) -> None:
        """The end, whatever came before."""
        with contextlib.suppress(Exception):
            self.client.disconnect()
        self.client.loop_stop()


__all__ = ["Got", "MQTTv5", "MQTTv311", "PacketTypes", "PahoClient", "properties"]
