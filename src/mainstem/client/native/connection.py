"""One native connection to a node: login, requests and responses, notifications, keep-alive.

Guarantees: responses are matched to requests by correlation number; when the connection ends, every
open request fails with ``Unavailable`` and ``ended`` is called once; a node that sends nothing for
two heartbeats counts as lost.
"""

import asyncio
import secrets
import ssl
from collections.abc import Callable
from struct import Struct as Layout
from typing import Any, Final, Self, cast

import msgspec

from mainstem.client import errors
from mainstem.client.connection import LengthPrefixedFrameReader
from mainstem.client.native.errors import copy_of, mainstem_error
from mainstem.client.network.login import NONCE_BYTES
from mainstem.client.sasl import SaslSettings, exchange_for
from mainstem.model.errors import Corrupt, ErrorCode, MainstemError, Unavailable
from mainstem.wire.kafka.codec import Malformed as BadFrame
from mainstem.wire.native.answers import Challenge, Connected, Goodbye, read_answer
from mainstem.wire.native.frames import COMPRESSIONS, NONE, MalformedFrame, frame, plain_body
from mainstem.wire.native.requests import Connect, Ping, Respond
from mainstem.wire.native.words import Error, NotAWord, Word, encode

ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
LEAVE_TIMEOUT_S: Final = 1.0
_HEAD: Final = Layout(">BI")
_NUMBER_MAX: Final = 2**32 - 1

NotificationHandler = Callable[[Word], None]
Ended = Callable[[MainstemError], None]


class NativeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a native connection.

    ``compression`` lists the compressions of frames in order of preference: ``brotli``, ``gzip``.
    """

    client_id: str = "mainstem"
    namespace: str = "/"
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    heartbeat_ms: int = 30_000
    compression: tuple[str, ...] = ()
    tls: ssl.SSLContext | None = None
    sasl: SaslSettings | None = None
    reconnect_ms_min: int = 1_000
    reconnect_ms_max: int = 300_000


class NativeConnection(asyncio.BufferedProtocol):
    """A live connection; made by ``open``."""

    def __init__(
        self, address: str, settings: NativeSettings, wakeup: NotificationHandler, ended: Ended
    ) -> None:
        self.address = address
        self.settings = settings
        self.terms = Connected(version=0)
        self._wakeup = wakeup
        self._on_ended = ended
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._frames = LengthPrefixedFrameReader()
        self._open: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._compression = NONE
        self._writable = asyncio.Event()
        self._writable.set()
        self._failure: MainstemError | None = None
        self._gone = asyncio.Event()
        self._has_received = True
        self._beat: asyncio.TimerHandle | None = None

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        settings: NativeSettings,
        wakeup: NotificationHandler,
        ended: Ended,
    ) -> Self:
        """Connects and logs in.

        Raises:
            Unavailable: there is no response, or not in time.
            InvalidRequest: the node refuses the login.
        """
        address = f"{host}:{port}"
        connection = cls(address, settings, wakeup, ended)
        try:
            async with asyncio.timeout(settings.connect_timeout_ms / 1000):
                await asyncio.get_running_loop().create_connection(
                    lambda: connection,
                    host,
                    port,
                    ssl=settings.tls,
                    server_hostname=host if settings.tls is not None else None,
                )
                await connection._log_in()
        except BaseException as error:
            await connection.leave()
            if isinstance(error, TimeoutError):
                late = f"no response in {settings.connect_timeout_ms} ms"
                raise errors.unreachable(address, late) from None
            if isinstance(error, ssl.SSLError):
                raise errors.untrusted(address, error) from error
            if isinstance(error, OSError):
                raise errors.unreachable(address, error.strerror or str(error)) from error
            raise
        return connection

    @property
    def is_open(self) -> bool:
        """Whether requests can still be sent."""
        return self._failure is None and self._transport is not None

    async def ask(self, word: Word, *, timeout_ms: int | None = None) -> Any:
        """Sends a request and returns its response.

        Raises:
            MainstemError: the node refuses, the connection ends or the time is up.
        """
        await self._writable.wait()
        number, answer = self._send(word)
        limit_ms = self.settings.request_timeout_ms if timeout_ms is None else timeout_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                return await answer
        except TimeoutError:
            raise Unavailable(
                ErrorCode.TIMED_OUT, f"no response in {limit_ms} ms", subject=self.address
            ) from None
        finally:
            self._open.pop(number, None)

    def send(self, word: Word) -> None:
        """Sends a request without a response; nothing is sent once the connection has ended."""
        if self._transport is not None and self._failure is None:
            self._transport.write(frame(0, encode(word), self._compression))

    def close(self) -> None:
        """Closes the connection; open requests fail."""
        self._end(Unavailable(ErrorCode.SHUTTING_DOWN, "the connection was closed"))

    async def leave(self) -> None:
        """Closes the connection and waits until it is closed; TLS needs time for its shutdown."""
        self.close()
        if self._transport is None:
            return
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                await self._gone.wait()
        except TimeoutError:
            self._transport.abort()
            await asyncio.sleep(0)

    def _send(self, word: Word) -> tuple[int, asyncio.Future[Any]]:
        if self._failure is not None:
            raise copy_of(self._failure)
        assert self._transport is not None, "made by open"
        self._number = self._number % _NUMBER_MAX + 1
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._open[self._number] = answer
        self._transport.write(frame(self._number, encode(word), self._compression))
        return self._number, answer

    async def _log_in(self) -> None:
        settings = self.settings
        sasl = settings.sasl
        mechanism, message, exchange = "", b"", None
        if sasl is not None:
            if sasl.token_source is not None:
                sasl = msgspec.structs.replace(sasl, token=await sasl.token_source())
            exchange = exchange_for(sasl, secrets.token_urlsafe(NONCE_BYTES))
            mechanism, message = sasl.mechanism, exchange.first()
        answer = await self.ask(
            Connect(
                client=settings.client_id,
                namespace=settings.namespace,
                mechanism=mechanism,
                response=message,
                compression=list(settings.compression),
                heartbeat_ms=settings.heartbeat_ms,
            )
        )
        while isinstance(answer, Challenge):
            response = None if exchange is None else exchange.answer(answer.data)
            answer = await self.ask(Respond(data=response or b""))
        if not isinstance(answer, Connected):
            raise Corrupt("the node's response to the login is invalid", subject=self.address)
        if exchange is not None:
            exchange.answer(answer.data)
        self.terms = answer
        self._compression = COMPRESSIONS.get(answer.compression, NONE)
        self._beat = self._loop.call_later(answer.heartbeat_ms / 1000, self._keep_alive)

    def _keep_alive(self) -> None:
        if self._failure is not None:
            return
        if not self._has_received:
            self._end(errors.unreachable(self.address, "nothing was received for two heartbeats"))
            return
        self._has_received = False
        self._send(Ping())[1].add_done_callback(_seen)
        self._beat = self._loop.call_later(self.terms.heartbeat_ms / 1000, self._keep_alive)

    def _end(self, error: MainstemError) -> None:
        if self._failure is not None:
            return
        self._failure = error
        if self._beat is not None:
            self._beat.cancel()
        if self._transport is not None:
            self._transport.close()
        self._writable.set()
        waiting, self._open = self._open, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(copy_of(error))
                answer.exception()  # mark as retrieved; its caller may be gone
        if self.terms.version:
            self._on_ended(error)

    # Callbacks of the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Stores the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next bytes."""
        return self._frames.free_space()

    def buffer_updated(self, nbytes: int) -> None:
        """Dispatches received frames."""
        self._has_received = True
        try:
            for data in self._frames.received(nbytes):
                self._arrived(memoryview(data))
        except (MalformedFrame, BadFrame, NotAWord) as error:
            self._end(Corrupt(f"the node sent an invalid response: {error}", subject=self.address))

    def connection_lost(self, exc: Exception | None) -> None:
        """Fails open requests."""
        self._gone.set()
        why = str(exc) if exc is not None else "the node closed the connection"
        self._end(errors.unreachable(self.address, why))

    def pause_writing(self) -> None:
        """Makes further requests wait until the transport has sent its buffer."""
        if self._failure is None:
            self._writable.clear()

    def resume_writing(self) -> None:
        """Resumes waiting requests."""
        self._writable.set()

    def _arrived(self, data: memoryview) -> None:
        if len(data) < _HEAD.size:
            raise MalformedFrame("a frame without a header")
        flags, number = _HEAD.unpack_from(data)
        body = plain_body(flags, data[_HEAD.size :], self._compression, ANSWER_BYTES_MAX)
        word = read_answer(body)
        if isinstance(word, Goodbye) and not word.grace_ms:
            self._end(mainstem_error(word.error))
            return
        answer = self._open.pop(number, None)
        if answer is None:
            self._wakeup(word)
        elif not answer.done():
            if isinstance(word, Error):
                answer.set_exception(mainstem_error(word))
            else:
                answer.set_result(word)


def _seen(answer: asyncio.Future[Any]) -> None:
    if not answer.cancelled():
        answer.exception()
