"""One TCP connection to a node: negotiated versions, pipelined calls, timeouts.

Guarantees: responses are matched to calls by correlation id; calls are sent in the order in which
they were made; at most ``in_flight_max`` are outstanding, further ones wait; a call that times out
closes the connection, since later responses would be late too; when the connection ends, every
outstanding call fails with ``Unavailable``. A login with a limited lifetime is repeated before it
expires, between calls.
"""

import asyncio
import ssl
from struct import Struct as Layout
from typing import Any, Final, Self, cast

import msgspec

from mainstem import __version__
from mainstem.client import errors
from mainstem.client.network.login import log_in, renewal_pause_s
from mainstem.client.sasl import SaslSettings
from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.wire.kafka import codec
from mainstem.wire.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

RECEIVE_BUFFER_BYTES: Final = 64 * 1024
RESPONSE_BYTES_MAX: Final = 256 * 1024 * 1024

_INT32 = Layout(">i")
_ERROR_CODE = Layout(">h")
_API_VERSIONS: Final = codec.API_VERSIONS_KEY


class ConnectionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a connection to a node."""

    client_id: str = "mainstem"
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    in_flight_max: int = 64
    tls: ssl.SSLContext | None = None
    sasl: SaslSettings | None = None


class _Call:
    """One outstanding call."""

    __slots__ = ("answer", "api_key", "version")

    def __init__(self, api_key: int, version: int, answer: asyncio.Future[Any]) -> None:
        self.api_key = api_key
        self.version = version
        self.answer = answer


class _Latch:
    """Makes calls wait while it is shut."""

    __slots__ = ("passage",)

    def __init__(self) -> None:
        self.passage: asyncio.Future[None] | None = None

    def shut(self, loop: asyncio.AbstractEventLoop) -> None:
        if self.passage is None:
            self.passage = loop.create_future()

    def open(self) -> None:
        if self.passage is not None:
            self.passage.set_result(None)
            self.passage = None


class Connection(asyncio.BufferedProtocol):
    """A live connection; made by ``open``."""

    def __init__(self, address: str, settings: ConnectionSettings) -> None:
        self.address = address
        self.settings = settings
        self.versions: dict[int, tuple[int, int]] = {}
        self.features: dict[str, int] = {}
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._slots = asyncio.Semaphore(settings.in_flight_max)
        self._calls: dict[int, _Call] = {}
        self._next_correlation_id = 0
        self._line = asyncio.Lock()  # keeps calls that wait at a latch in order
        self._writable = _Latch()  # shut while the transport's buffer is full
        self._login = _Latch()  # shut while a login is repeated
        self._renewal: asyncio.Task[None] | None = None
        self._ended: MainstemError | None = None
        self._frames = LengthPrefixedFrameReader()

    @classmethod
    async def open(cls, host: str, port: int, settings: ConnectionSettings) -> Self:
        """Connects and negotiates versions.

        Raises:
            Unavailable: there is no response, or not in time.
            InvalidRequest: the peer has no version of the protocol in common with us, or refuses
                the login.
        """
        address = f"{host}:{port}"
        loop = asyncio.get_running_loop()
        connection = cls(address, settings)
        try:
            async with asyncio.timeout(settings.connect_timeout_ms / 1000):
                await loop.create_connection(
                    lambda: connection,
                    host,
                    port,
                    ssl=settings.tls,
                    server_hostname=host if settings.tls is not None else None,
                )
                await connection._negotiate()
                if settings.sasl is not None:
                    ask = connection._ask_at_once
                    lifetime_ms = await log_in(ask, settings.sasl, subject=address)
                    if lifetime_ms:
                        renewal = connection._stay_known(settings.sasl, lifetime_ms)
                        connection._renewal = loop.create_task(renewal)
        except TimeoutError:
            connection.close()
            raise errors.unreachable(
                address, f"no response in {settings.connect_timeout_ms} ms"
            ) from None
        except ssl.SSLError as error:
            connection.close()
            raise errors.untrusted(address, error) from error
        except OSError as error:
            connection.close()
            raise errors.unreachable(address, error.strerror or str(error)) from error
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def is_open(self) -> bool:
        """Whether calls may still be made."""
        return self._ended is None and self._transport is not None

    def version_of(self, name: str, version_max: int | None = None, *, version_min: int = 0) -> int:
        """The newest version of an API that both sides support.

        Raises:
            InvalidRequest: there is none.
        """
        api_key = codec.KEYS[name]
        low, high = codec.VERSIONS[api_key]
        their_low, their_high = self.versions.get(api_key, (1, 0))
        version = min(high, their_high, high if version_max is None else version_max)
        if version < max(low, their_low, version_min):
            theirs = f"the node {their_low} to {their_high}"
            raise InvalidRequest(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{name}: the client supports versions {low} to {high}, "
                + (theirs if api_key in self.versions else "the node does not serve it"),
                subject=self.address,
                remedy="use a newer broker",
            )
        return version

    async def call(
        self, request: msgspec.Struct, *, version: int | None = None, timeout_ms: int | None = None
    ) -> Any:
        """Sends a request and returns its response; the newest common version unless given.

        Raises:
            Unavailable: the connection ended or the call timed out.
            InvalidRequest: no common version, or a value that the version cannot carry.
        """
        name = api_name(request)
        if version is None:
            version = self.version_of(name)
        limit_ms = self.settings.request_timeout_ms if timeout_ms is None else timeout_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                return await self._exchange(codec.KEYS[name], version, request)
        except TimeoutError:
            late = Unavailable(
                ErrorCode.TIMED_OUT, f"{name}: no response in {limit_ms} ms", subject=self.address
            )
            self._end(late)
            raise late from None

    async def send_unanswered(self, request: msgspec.Struct, *, version: int | None = None) -> None:
        """Sends a request that has no response (a produce without acknowledgement)."""
        name = api_name(request)
        if version is None:
            version = self.version_of(name)
        await self._exchange(codec.KEYS[name], version, request, is_answered=False)

    def close(self) -> None:
        """Closes the connection; outstanding calls fail."""
        self._end(Unavailable(ErrorCode.SHUTTING_DOWN, "the connection was closed"))

    async def _negotiate(self) -> None:
        version = codec.VERSIONS[_API_VERSIONS][1]
        request = ApiVersionsRequest(
            client_software_name="mainstem", client_software_version=__version__
        )
        response: ApiVersionsResponse = await self._exchange(_API_VERSIONS, version, request)
        if response.error_code == errors.UNSUPPORTED_VERSION:
            # The response has version 0 and, from newer brokers, lists the supported versions.
            offered = [api.max_version for api in response.api_keys if api.api_key == _API_VERSIONS]
            version = min(version, max(offered, default=0))
            response = await self._exchange(_API_VERSIONS, version, request)
        errors.check(response.error_code, subject=self.address)
        self.versions = {
            api.api_key: (api.min_version, api.max_version) for api in response.api_keys
        }
        self.features = {each.name: each.max_version_level for each in response.finalized_features}

    async def _stay_known(self, sasl: SaslSettings, lifetime_ms: int) -> None:
        """Repeats the login before it expires; other calls wait meanwhile."""
        while lifetime_ms:
            await asyncio.sleep(renewal_pause_s(lifetime_ms))
            self._login.shut(self._loop)
            try:
                async with asyncio.timeout(self.settings.request_timeout_ms / 1000):
                    lifetime_ms = await log_in(self._ask_at_once, sasl, subject=self.address)
            except TimeoutError:
                self._end(errors.unreachable(self.address, "a login had no response in time"))
                return
            except MainstemError as error:
                self._end(error)
                return
            finally:
                self._login.open()

    async def _ask_at_once(self, request: msgspec.Struct) -> Any:
        """Sends a login request ahead of all waiting calls."""
        name = api_name(request)
        answer = self._loop.create_future()
        # After version 0 of the handshake, messages would follow without a Kafka header.
        version = self.version_of(name, version_min=1 if name == "SaslHandshake" else 0)
        call = _Call(codec.KEYS[name], version, answer)
        while (passage := self._writable.passage) is not None:
            await asyncio.shield(passage)
        self._write(call.api_key, version, request, call)
        return await answer

    async def _exchange(
        self, api_key: int, version: int, request: msgspec.Struct, *, is_answered: bool = True
    ) -> Any:
        async with self._slots:
            answer = self._loop.create_future()
            async with self._line:
                while (passage := self._writable.passage or self._login.passage) is not None:
                    await asyncio.shield(passage)
                call = _Call(api_key, version, answer) if is_answered else None
                self._write(api_key, version, request, call)
            # A caller that is cancelled here leaves its entry; the late response is then dropped.
            return await answer if is_answered else None

    def _write(
        self, api_key: int, version: int, request: msgspec.Struct, call: _Call | None
    ) -> None:
        if self._ended is not None:
            raise _copy(self._ended)
        assert self._transport is not None, "a connection is made by open"
        correlation_id = self._next_correlation_id
        try:
            chunks: list[Any] = codec.encode_request_frame(
                api_key, version, correlation_id, self.settings.client_id, request
            )
        except codec.Unencodable as error:
            raise InvalidRequest(ErrorCode.INVALID_REQUEST, str(error)) from error
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        if call is not None:
            self._calls[correlation_id] = call
        self._transport.writelines(chunks)

    def _answered(self, frame: bytes | bytearray) -> None:
        """Passes a response to the call that waits for it."""
        [correlation_id] = _INT32.unpack_from(frame, 0)
        call = self._calls.pop(correlation_id, None)
        if call is None:
            self._end(
                Corrupt(
                    f"a response has the unknown correlation id {correlation_id}",
                    subject=self.address,
                )
            )
            return
        if call.answer.done():
            return
        try:
            version = _version_of_answer(call, frame)
            _, body = codec.decode_response_header(call.api_key, version, frame, 0, len(frame))
            message = codec.decode_response(call.api_key, version, frame, body, len(frame))
        except codec.Malformed as error:
            damage = Corrupt(f"the node's response is malformed: {error}", subject=self.address)
            call.answer.set_exception(damage)
            self._end(damage)
        else:
            call.answer.set_result(message)

    def _end(self, error: MainstemError) -> None:
        if self._ended is not None:
            return
        self._ended = error
        if self._transport is not None:
            self._transport.abort()
        if self._renewal is not None:
            self._renewal.cancel()
        self._writable.open()
        self._login.open()
        calls, self._calls = self._calls, {}
        for call in calls.values():
            if not call.answer.done():
                call.answer.set_exception(_copy(error))
                # A caller that was cancelled meanwhile never retrieves it.
                call.answer.exception()

    # Callbacks of asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Stores the transport."""
        # A cast, since uvloop's transports are not subclasses.
        self._transport = cast("asyncio.Transport", transport)
        if self._ended is not None:
            self._transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        """The buffer for the next bytes."""
        return self._frames.free_space()

    def buffer_updated(self, nbytes: int) -> None:
        """Processes received bytes."""
        try:
            frames = self._frames.received(nbytes)
        except codec.Malformed as error:
            self._end(Corrupt(str(error), subject=self.address))
            return
        for frame in frames:
            self._answered(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fails outstanding calls."""
        why = str(exc) if exc is not None else "the node closed the connection"
        self._end(errors.unreachable(self.address, why))

    def pause_writing(self) -> None:
        """Makes further calls wait until the transport has sent its buffer."""
        if self._ended is None:
            self._writable.shut(self._loop)

    def resume_writing(self) -> None:
        """Resumes waiting calls."""
        self._writable.open()


class LengthPrefixedFrameReader:
    """Splits received bytes into frames; a large one is received into its own buffer."""

    __slots__ = ("_buffer", "_filled", "_large", "_large_filled", "_view")

    def __init__(self) -> None:
        self._buffer = bytearray(RECEIVE_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._large: bytearray | None = None
        self._large_filled = 0

    def free_space(self) -> memoryview:
        """The buffer for the next bytes."""
        if self._large is not None:
            return memoryview(self._large)[self._large_filled :]
        return self._view[self._filled :]

    def received(self, count: int) -> list[bytes | bytearray]:
        """Accounts for received bytes; returns the frames that are now complete.

        Raises:
            Malformed: a frame claims an impossible size.
        """
        if self._large is not None:
            self._large_filled += count
            if self._large_filled < len(self._large):
                return []
            whole, self._large = self._large, None
            return [whole]
        self._filled += count
        return self._cut()

    def _cut(self) -> list[bytes | bytearray]:
        frames: list[bytes | bytearray] = []
        at, filled = 0, self._filled
        while filled - at >= 4:
            [size] = _INT32.unpack_from(self._buffer, at)
            if not 4 <= size <= RESPONSE_BYTES_MAX:
                raise codec.Malformed(f"a response of {size} bytes")
            if at + 4 + size > filled:
                if 4 + size > RECEIVE_BUFFER_BYTES:
                    self._begin_large(size, at + 4)
                    at = filled
                break
            frames.append(bytes(self._view[at + 4 : at + 4 + size]))
            at += 4 + size
        if at:
            self._buffer[: filled - at] = self._buffer[at:filled]
        self._filled = filled - at
        return frames

    def _begin_large(self, size: int, start: int) -> None:
        self._large = bytearray(size)
        self._large_filled = self._filled - start
        self._large[: self._large_filled] = self._view[start : self._filled]


def api_name(request: msgspec.Struct) -> str:
    """The API that a request class belongs to."""
    return type(request).__name__.removesuffix("Request")


def _version_of_answer(call: _Call, frame: bytes | bytearray) -> int:
    """ApiVersions refusals have version 0, whatever the request had."""
    if call.api_key == _API_VERSIONS and len(frame) >= 6:
        [code] = _ERROR_CODE.unpack_from(frame, 4)
        if code == errors.UNSUPPORTED_VERSION:
            return 0
    return call.version


def _copy(error: MainstemError) -> MainstemError:
    """A copy for each waiting call, so that tracebacks do not accumulate in one instance."""
    if isinstance(error, Corrupt):
        return Corrupt(error.cause, subject=error.subject, remedy=error.remedy)
    return type(error)(error.code, error.cause, subject=error.subject, remedy=error.remedy)
