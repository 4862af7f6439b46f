"""A reconnecting native link: one connection at a time, replaced whenever it ends.

Guarantees: ``start`` fails at once if no address responds; after that a lost connection is replaced
after 1 s, then twice as long each time up to 5 min (with jitter, so that many clients do not
reconnect together), each time at the next address; before a caller gets the new connection,
``restore`` has restored the state of the old one on it.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from mainstem.client.cluster import parse_address
from mainstem.client.native.connection import NativeConnection, NativeSettings
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.wire.native.frames import DEFAULT_PORT
from mainstem.wire.native.words import Word

Restore = Callable[[NativeConnection], Awaitable[None]]
LinkNotificationHandler = Callable[[NativeConnection, Word], None]
_DOUBLINGS_MAX: Final = 20


def pause_ms(failures: int, settings: NativeSettings, chance: float) -> float:
    """The pause before the n-th attempt in a row; ``chance`` in [0, 1) spreads it by a fifth."""
    doubled = settings.reconnect_ms_min * 2.0 ** min(max(0, failures - 1), _DOUBLINGS_MAX)
    return min(float(settings.reconnect_ms_max), doubled) * (0.8 + 0.4 * chance)


class NativeLink:
    """Keeps one native connection open and reconnects when it ends."""

    def __init__(
        self,
        addresses: str | Sequence[str],
        settings: NativeSettings,
        wakeup: LinkNotificationHandler,
        restore: Restore,
    ) -> None:
        given = addresses.split(",") if isinstance(addresses, str) else addresses
        self._addresses = [native_address(each) for each in given]
        self.settings = settings
        self._wakeup = wakeup
        self._restore = restore
        self._live: asyncio.Future[NativeConnection] | None = None
        self._connection: NativeConnection | None = None
        self._redial: asyncio.Task[None] | None = None
        self._at = 0
        self._is_closed = False

    @property
    def is_connected(self) -> bool:
        """Whether a request would be sent at once."""
        return self._connection is not None and self._connection.is_open

    async def start(self) -> None:
        """Tries each address once.

        Raises:
            MainstemError: the error of the last address.
        """
        self._live = asyncio.get_running_loop().create_future()
        for attempt in range(len(self._addresses)):
            try:
                await self._dial()
            except MainstemError:
                self._at += 1
                if attempt + 1 == len(self._addresses):
                    raise
            else:
                return

    async def connection(self, timeout_ms: int) -> NativeConnection:
        """The open connection; waits for the next one if there is none.

        Raises:
            Unavailable: there is none in time.
        """
        if self._connection is not None and self._connection.is_open:
            return self._connection
        if self._is_closed or self._live is None:
            raise InvalidRequest(ErrorCode.INVALID_REQUEST, "the client is not open")
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await asyncio.shield(self._live)
        except TimeoutError:
            raise Unavailable(
                ErrorCode.WRITER_UNAVAILABLE, f"no node could be reached in {timeout_ms} ms"
            ) from None

    async def ask(self, word: Word, *, timeout_ms: int | None = None) -> Any:
        """Sends a request, again over the next connection if this one ends meanwhile.

        A request that is sent twice may be carried out twice: a message that was not confirmed
        can be stored twice, but is not lost.

        Raises:
            MainstemError: the node refuses, or does not respond in time.
        """
        loop = asyncio.get_running_loop()
        limit_ms = self.settings.request_timeout_ms if timeout_ms is None else timeout_ms
        until = loop.time() + limit_ms / 1000
        while True:
            left_ms = max(1, round((until - loop.time()) * 1000))
            connection = await self.connection(left_ms)
            try:
                return await connection.ask(word, timeout_ms=left_ms)
            except Unavailable:
                if connection.is_open or loop.time() >= until:
                    raise

    async def close(self) -> None:
        """Closes the connection and cancels any attempt to connect."""
        self._is_closed = True
        if self._redial is not None:
            self._redial.cancel()
            await asyncio.gather(self._redial, return_exceptions=True)
        if self._connection is not None:
            await self._connection.leave()
        if self._live is not None and not self._live.done():
            self._live.cancel()

    async def _dial(self) -> None:
        host, port = self._addresses[self._at % len(self._addresses)]
        made: list[NativeConnection] = []
        connection = await NativeConnection.open(
            host,
            port,
            self.settings,
            lambda word: self._wakeup(made[0], word) if made else None,
            self._ended,
        )
        made.append(connection)
        try:
            await self._restore(connection)
        except BaseException:
            await connection.leave()
            raise
        self._connection = connection
        assert self._live is not None, "made by start"
        if not self._live.done():
            self._live.set_result(connection)

    def _ended(self, _: MainstemError) -> None:
        if self._is_closed or self._redial is not None:
            return
        self._connection = None
        loop = asyncio.get_running_loop()
        if self._live is not None and self._live.done():
            self._live = loop.create_future()
        self._redial = loop.create_task(self._redialling())
        self._redial.add_done_callback(self._redialled)

    async def _redialling(self) -> None:
        failures = 0
        while not self._is_closed:
            failures += 1
            # Jitter of retries needs no secure randomness.
            await asyncio.sleep(pause_ms(failures, self.settings, random.random()) / 1000)  # noqa: S311
            try:
                await self._dial()
            except MainstemError:
                self._at += 1
            else:
                return

    def _redialled(self, task: asyncio.Task[None]) -> None:
        self._redial = None
        if not task.cancelled() and self._connection is not None and not self._connection.is_open:
            self._ended(Unavailable(ErrorCode.WRITER_UNAVAILABLE, "the connection ended again"))


def native_address(text: str) -> tuple[str, int]:
    """``host``, ``host:port`` or ``[v6]:port`` to host and port; 2925 by default."""
    text = text.strip()
    is_bare_v6 = text.count(":") > 1 and not text.startswith("[")
    if ":" not in text or is_bare_v6 or text.endswith("]"):
        bare = text.removeprefix("[").removesuffix("]")
        text = f"[{bare}]:{DEFAULT_PORT}" if ":" in bare else f"{bare}:{DEFAULT_PORT}"
    return parse_address(text)
