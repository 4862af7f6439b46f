"""A small MQTT 5 client over a blocking socket, for the command line.

    with MqttClient("127.0.0.1", 1883) as client:
        client.publish("home/light", b"on", qos=1, retain=True)
        client.subscribe("home/#", qos=1)
        for message in client.messages(): …

Every step waits for its response. A refusal is raised as a Mainstem error with the reason.
"""

import socket
import ssl
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self, TypeVar

from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.wire.mqtt.decoder import decode, frame_at
from mainstem.wire.mqtt.encoder import encode
from mainstem.wire.mqtt.kinds import V5, Kind
from mainstem.wire.mqtt.packets import (
    Ack,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Publish,
    Suback,
    Subscribe,
    Subscription,
)
from mainstem.wire.mqtt.primitives import Malformed
from mainstem.wire.mqtt.properties import Properties
from mainstem.wire.mqtt.reasons import REFUSED, Reason

READ_BYTES: Final = 65_536
KEEP_ALIVE_S: Final = 60
_LOGIN: Final = (Reason.BAD_LOGIN, Reason.NOT_AUTHORIZED, Reason.BAD_AUTHENTICATION_METHOD)

AnswerT = TypeVar("AnswerT", Connack, Ack, Suback)


class MqttClient:
    """One connection, one step at a time."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        login: tuple[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        self._timeout_s = timeout_s
        self._held = bytearray()
        self._messages: deque[Publish] = deque()
        self._last_id = 0
        self._socket = _dialled(host, port, tls, timeout_s)
        name, password = (None, None) if login is None else (login[0], login[1].encode())
        try:
            self._send(
                Connect(version=V5, keep_alive_s=KEEP_ALIVE_S, username=name, password=password)
            )
            answer = self._answer(Connack)
            _check(answer.reason, answer.properties, "the connection")
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Send DISCONNECT and close the socket."""
        try:
            self._socket.sendall(encode(Disconnect(), V5))
        except OSError:
            return  # the server is gone already
        finally:
            self._socket.close()

    def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        qos: int = 1,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> None:
        """Send a message; returns once it is stored, unless its QoS is 0."""
        number = self._new_id() if qos else 0
        given = properties or {}
        self._send(Publish(topic, payload, qos, retain, packet_id=number, properties=given))
        if not qos:
            return
        answer = self._answer(Ack)
        _check(answer.reason, answer.properties, topic)
        if qos == 2:
            self._send(Ack(Kind.PUBREL, number))
            self._answer(Ack)

    def subscribe(self, text: str, *, qos: int = 1) -> None:
        """Subscribe to a topic filter; retained messages that match are received too."""
        self._send(Subscribe(self._new_id(), (Subscription(text, qos),)))
        answer = self._answer(Suback)
        _check(answer.reasons[0], answer.properties, text)

    def messages(self, *, within_s: float | None = None) -> Iterator[Publish]:
        """Messages as they arrive; ends when none arrives within the time, if one is given."""
        while True:
            try:
                message = self._next_message(within_s)
            except TimeoutError:
                return
            yield message
            # Only now: after a stop in between, a persistent session redelivers it.
            if message.qos == 1:
                self._send(Ack(Kind.PUBACK, message.packet_id))
            elif message.qos == 2:
                self._send(Ack(Kind.PUBREC, message.packet_id))

    def _next_message(self, within_s: float | None) -> Publish:
        while not self._messages:
            self._socket.settimeout(within_s or KEEP_ALIVE_S / 2)
            try:
                packet = self._receive()
            except TimeoutError:
                if within_s is not None:
                    raise
                self._send(Pingreq())
                continue
            self._take(packet)
        return self._messages.popleft()

    def _take(self, packet: Packet) -> None:
        """Handles packets other than the expected response."""
        if isinstance(packet, Publish):
            self._messages.append(packet)
        elif isinstance(packet, Ack) and packet.kind is Kind.PUBREL:
            self._send(Ack(Kind.PUBCOMP, packet.packet_id))
        elif isinstance(packet, Disconnect):
            _check(packet.reason or Reason.UNSPECIFIED, packet.properties, "the connection")

    def _answer(self, kind: type[AnswerT]) -> AnswerT:
        self._socket.settimeout(self._timeout_s)
        while True:
            try:
                packet = self._receive()
            except TimeoutError as error:
                raise Unavailable(ErrorCode.TIMED_OUT, "the node does not respond") from error
            is_release = isinstance(packet, Ack) and packet.kind is Kind.PUBREL
            if isinstance(packet, kind) and not is_release:
                return packet
            self._take(packet)

    def _send(self, packet: Packet) -> None:
        try:
            self._socket.sendall(encode(packet, V5))
        except OSError as error:
            raise _gone(error) from error

    def _receive(self) -> Packet:
        while True:
            try:
                frame = frame_at(self._held, 0, len(self._held))
                if frame is not None and sum(frame) <= len(self._held):
                    head, size = frame
                    first, body = self._held[0], bytes(self._held[head : head + size])
                    del self._held[: head + size]
                    return decode(first, body, V5)
                piece = self._socket.recv(READ_BYTES)
            except TimeoutError:
                raise
            except (OSError, Malformed) as error:
                raise _gone(error) from error
            if not piece:
                raise _gone(ConnectionError("the node closed the connection"))
            self._held += piece

    def _new_id(self) -> int:
        self._last_id = self._last_id % 65_535 + 1
        return self._last_id


def _dialled(host: str, port: int, tls: ssl.SSLContext | None, timeout_s: float) -> socket.socket:
    try:
        plain = socket.create_connection((host, port), timeout_s)
        return plain if tls is None else tls.wrap_socket(plain, server_hostname=host)
    except OSError as error:
        raise Unavailable(
            ErrorCode.WRITER_UNAVAILABLE,
            f"no response: {error}",
            subject=f"{host}:{port}",
            remedy="start a node with mqtt.enabled, or give another address",
        ) from error


def _check(reason: int, properties: Properties, subject: str) -> None:
    if reason < REFUSED:
        return
    name = Reason(reason).name.replace("_", " ").lower()
    cause = f"{name}: {properties['reason_string']}" if "reason_string" in properties else name
    if reason in _LOGIN:
        code = ErrorCode.NOT_AUTHORIZED
        if reason != Reason.NOT_AUTHORIZED:
            code = ErrorCode.AUTHENTICATION_FAILED
        raise InvalidRequest(code, cause, subject=subject)
    raise InvalidRequest(ErrorCode.INVALID_REQUEST, cause, subject=subject)


def _gone(error: Exception) -> MainstemError:
    return Unavailable(ErrorCode.WRITER_UNAVAILABLE, f"the connection was lost: {error}")
