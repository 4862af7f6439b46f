"""MQTT over WebSocket, on a connection that the HTTP listener passes on.

A web page may open a WebSocket to any address, including this machine's, without a preflight
request: pages of another origin are refused, and so are foreign host names where loopback
replaces a login. MQTT packets are a stream of bytes; frame boundaries are arbitrary.

If another node serves the sessions, the connection is forwarded to its HTTP listener, starting
with the request. A TLS connection ends here and cannot be forwarded, because the other node does
not have this node's certificate: its client gets the reason "use another server".
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Any, Final, Protocol, cast
from urllib.parse import urlsplit

from mainstem.protocols.mqtt.connection.session import (
    FIRST_PACKET_BYTES_MAX,
    MqttPeer,
    MqttService,
    MqttSession,
)
from mainstem.protocols.relay_listener import Relay, Relays
from mainstem.protocols.session import Chunk, ProtocolViolation
from mainstem.wire import websocket
from mainstem.wire.websocket import FrameReader, WebSocketError

log = logging.getLogger(__name__)

PATH: Final = "/mqtt"
SUBPROTOCOLS: Final = ("mqtt", "mqttv3.1")
CLOSE_WAIT_MAX_S: Final = 2.0


class ServerState(Protocol):
    """Registers the open connections of the HTTP listener."""

    connections: set[Any]


class MqttWebSocket(asyncio.Protocol):
    """One WebSocket client; the first bytes it receives are the upgrade request."""

    def __init__(self, service: MqttService, state: ServerState, relays: Relays | None) -> None:
        self._service = service
        self._relays = relays
        self._relay: Relay | None = None
        self._state = state
        self._packet_bytes_max = service.hub.settings.packet_bytes_max
        self._frames = FrameReader(min(FIRST_PACKET_BYTES_MAX, self._packet_bytes_max))
        self._pending = bytearray()
        self._session: MqttSession | None = None
        self._is_closing: bool = False
        self.transport: asyncio.Transport

    # The connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take over the connection from the HTTP listener."""
        self.transport = cast("asyncio.Transport", transport)
        self._state.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the session: the connection is lost."""
        self._state.connections.discard(self)
        if self._relay is not None:
            self._relay.connection_lost(exc)
        self._is_closing = True
        if self._session is not None:
            self._session.closed()

    def eof_received(self) -> bool:
        """Close the connection: the peer sends no more."""
        return False

    def shutdown(self) -> None:
        """Close the connection: the HTTP listener stops."""
        self._close(websocket.GOING_AWAY)

    def pause_writing(self) -> None:
        """Pause a relay; a session checks ``unsent_bytes`` itself."""
        if self._relay is not None:
            self._relay.pause_writing()

    def resume_writing(self) -> None:
        """The transport accepts data again."""
        if self._relay is not None:
            self._relay.resume_writing()

    def data_received(self, data: bytes) -> None:
        """Handle the request first, then frames."""
        if self._is_closing:
            return
        if self._relay is not None:
            self._relay.data_received(data)
            return
        if self._session is None:
            self._upgrade(data)
            return
        if self._session.is_logged_in:
            self._frames.payload_bytes_max = self._packet_bytes_max
        try:
            for opcode, payload in self._frames.feed(data):
                self._take(opcode, payload)
        except WebSocketError as error:
            self._service.metrics.malformed_frames += 1
            self._close(error.code)
        except ProtocolViolation as reason:
            log.warning("WebSocket closed: %s", reason)
            self._close(websocket.PROTOCOL_ERROR)

    def _take(self, opcode: int, payload: bytes) -> None:
        if self._is_closing:
            return  # bytes after the close
        if opcode in (websocket.BINARY, websocket.CONTINUATION):
            self._feed(payload)
        elif opcode == websocket.PING:
            self.transport.write(websocket.frame(websocket.PONG, payload))
        elif opcode == websocket.CLOSE:
            self._close(websocket.NORMAL)
        elif opcode == websocket.TEXT:
            raise WebSocketError(websocket.UNSUPPORTED_DATA, "MQTT requires binary frames")

    def _feed(self, payload: bytes) -> None:
        assert self._session is not None
        pending = self._pending
        pending += payload
        with memoryview(pending) as view:
            start, _ = self._session.receive(pending, view, 0, len(pending))
        del pending[:start]

    # The handshake

    def _upgrade(self, request: bytes) -> None:
        path, headers = _parsed(request)
        status = _refusal(path, headers, is_trusted=self._service.authenticator.policy.trusted)
        accepted = websocket.accept_key(headers.get("sec-websocket-key", ""))
        if status or accepted is None:
            self._answer(status or "400 Bad Request")
            return
        asked = [each.strip() for each in headers.get("sec-websocket-protocol", "").split(",")]
        chosen = next((each for each in asked if each in SUBPROTOCOLS), None)
        if chosen is None:
            self._answer("400 Bad Request")
            return
        if self._pass_on(request):
            return
        self.transport.write(
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
            + f"sec-websocket-accept: {accepted}\r\n".encode()
            + f"sec-websocket-protocol: {chosen}\r\n\r\n".encode()
        )
        peer = self.transport.get_extra_info("peername")
        address = str(peer[0]) if isinstance(peer, tuple) else ""
        tls = self.transport.get_extra_info("ssl_object")
        self._session = MqttSession(self, MqttPeer(address, tls), self._service)
        timeout_ms = self._service.hub.settings.connect_timeout_ms
        self._service.runner.later(timeout_ms, self._check_in)

    def _pass_on(self, request: bytes) -> bool:
        """Forward the client to the node that serves the sessions, if it is another one; once."""
        relays, self._relays = self._relays, None
        is_open_here = self.transport.get_extra_info("ssl_object") is not None
        if relays is None or is_open_here or not relays.is_on_other_node():
            return False

        def stay() -> MqttWebSocket:
            """Serve the client here, because the other node cannot be reached; it gets an error."""
            self._relay = None
            return self

        self._relay = relays.make(stay)
        self._relay.connection_made(self.transport)
        self._relay.data_received(request)
        return True

    def _answer(self, status: str) -> None:
        self._is_closing = True
        version = "sec-websocket-version: 13\r\n" if status.startswith("426") else ""
        self.transport.write(
            f"HTTP/1.1 {status}\r\n{version}content-length: 0\r\nconnection: close\r\n\r\n".encode()
        )
        self.transport.close()

    def _check_in(self) -> None:
        if self._session is not None and not self._session.is_logged_in:
            self.transport.abort()

    # Requests of the session

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the peer has not accepted yet."""
        return self.transport.get_write_buffer_size()

    def send(self, chunks: Sequence[Chunk]) -> None:
        """Send packets, as one frame."""
        if not self._is_closing:
            data = b"".join(cast("Sequence[bytes]", chunks))
            self.transport.write(websocket.frame(websocket.BINARY, data))

    def pause(self) -> None:
        """Stop reading."""
        if not self.transport.is_closing() and self.transport.is_reading():
            self.transport.pause_reading()

    def resume(self) -> None:
        """Resume reading."""
        if not self.transport.is_closing() and not self.transport.is_reading():
            self.transport.resume_reading()

    def close(self) -> None:
        """Send what is queued, then close."""
        self._close(websocket.NORMAL)

    def _close(self, code: int) -> None:
        if not self._is_closing:
            self._is_closing = True
            self.transport.write(websocket.close_frame(code))
            self.transport.close()
            # A peer that does not read would keep the connection open forever.
            loop = asyncio.get_running_loop()
            loop.call_later(CLOSE_WAIT_MAX_S, self.transport.abort)


def websocket_factory(
    service: MqttService, relays: Relays | None = None
) -> Callable[..., MqttWebSocket]:
    """Create the factory that the HTTP listener calls for upgrade requests."""

    def make(*, server_state: ServerState, **_unused: object) -> MqttWebSocket:
        return MqttWebSocket(service, server_state, relays)

    return make


def _parsed(request: bytes) -> tuple[str, dict[str, str]]:
    """The path and the headers of a request; values of a repeated header are joined."""
    first, *lines = request.decode("latin-1").split("\r\n")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            name = name.strip().lower()
            value = value.strip()
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
    parts = first.split(" ")
    return (parts[1].partition("?")[0] if len(parts) > 1 else ""), headers


def _refusal(path: str, headers: dict[str, str], *, is_trusted: bool) -> str:
    """The status with which an upgrade is refused; empty if it is accepted."""
    if path != PATH:
        return "404 Not Found"
    host = headers.get("host", "")
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != host:
        return "403 Forbidden"
    if is_trusted and not _is_own(host):
        return "403 Forbidden"
    return "" if headers.get("sec-websocket-version") == "13" else "426 Upgrade Required"


def _is_own(host: str) -> bool:
    """Whether a host is localhost or an IP address, which DNS rebinding cannot forge."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or name.endswith(".localhost") or bool(ip_address(name))
    except ValueError:
        return False
