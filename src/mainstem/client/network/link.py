"""A reconnecting link to one node: connects when needed, and again with exponential backoff.

Guarantees: at most one attempt to connect at a time, shared by all callers; they get the connection
in the order in which they called, so that what they send at once keeps that order; after a failure
the next attempt waits 100 ms, then twice as long each time up to 30 s (with jitter, so that many
clients do not reconnect together); a success resets the pause.
"""

import asyncio
import random
from typing import Any, Final

import msgspec

from mainstem.client.connection import Connection, ConnectionSettings

BACKOFF_MS_MIN: Final = 100
BACKOFF_MS_MAX: Final = 30_000
_DOUBLINGS_MAX: Final = 10


def backoff_ms(failures: int, chance: float) -> float:
    """The pause after so many failures in a row; ``chance`` in [0, 1) spreads it by a fifth."""
    if failures <= 0:
        return 0.0
    doubled = BACKOFF_MS_MIN * 2.0 ** min(failures - 1, _DOUBLINGS_MAX)
    return min(BACKOFF_MS_MAX, doubled) * (0.8 + 0.4 * chance)


class Link:
    """One node's address and the connection to it."""

    def __init__(self, host: str, port: int, settings: ConnectionSettings) -> None:
        self.host = host
        self.port = port
        self._settings = settings
        self._connection: Connection | None = None
        self._dial: asyncio.Task[Connection] | None = None
        self._line = asyncio.Lock()
        self._failures = 0
        self._not_before = 0.0
        self._closed = False

    @property
    def address(self) -> str:
        """Where the node is."""
        return f"{self.host}:{self.port}"

    @property
    def is_connected(self) -> bool:
        """Whether a call would be sent at once."""
        return self._connection is not None and self._connection.is_open

    @property
    def is_resting(self) -> bool:
        """Whether the last attempt to connect failed and the next one has to wait."""
        return asyncio.get_running_loop().time() < self._not_before

    async def connection(self) -> Connection:
        """The open connection; connects if there is none.

        Raises:
            Unavailable: connecting failed; the next call waits and tries again.
        """
        assert not self._closed, "the link was closed"
        # Taken before the lock: one failure is raised to all callers that waited for that attempt.
        dial = None if self.is_connected else self._dialling()
        async with self._line:
            if dial is None and self._connection is not None and self._connection.is_open:
                return self._connection
            return await asyncio.shield(dial or self._dialling())

    async def call(
        self, request: msgspec.Struct, *, version: int | None = None, timeout_ms: int | None = None
    ) -> Any:
        """Calls the node, over a new connection if needed."""
        connection = await self.connection()
        return await connection.call(request, version=version, timeout_ms=timeout_ms)

    def abandon(self) -> None:
        """Closes the connection at once, because the node moved; the link is not used again."""
        if self._connection is not None:
            self._connection.close()

    async def close(self) -> None:
        """Closes the connection and cancels any attempt to connect."""
        self._closed = True
        if self._dial is not None:
            self._dial.cancel()
            await asyncio.gather(self._dial, return_exceptions=True)
        if self._connection is not None:
            self._connection.close()
            # One turn of the loop lets the transport report its end.
            await asyncio.sleep(0)

    def _dialling(self) -> asyncio.Task[Connection]:
        """The attempt that is under way; starts one if there is none."""
        if self._dial is None:
            self._dial = asyncio.get_running_loop().create_task(self._open())
            self._dial.add_done_callback(self._dialled)
        return self._dial

    async def _open(self) -> Connection:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._not_before - loop.time()))
        try:
            connection = await Connection.open(self.host, self.port, self._settings)
        except BaseException:
            self._failures += 1
            # Jitter of retries needs no secure randomness.
            pause_ms = backoff_ms(self._failures, random.random())  # noqa: S311
            self._not_before = loop.time() + pause_ms / 1000
            raise
        self._failures = 0
        self._not_before = 0.0
        self._connection = connection
        return connection

    def _dialled(self, dial: asyncio.Task[Connection]) -> None:
        self._dial = None
        if not dial.cancelled():
            dial.exception()  # mark as retrieved; callers that still wait raise it
