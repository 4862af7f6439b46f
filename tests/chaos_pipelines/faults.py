"""Servers that misbehave: a proxy that drops connections, a receiver of webhooks that fails."""

import asyncio
import contextlib
import hashlib
import http.server
import random
import threading
import time
from typing import Any, Self

HANG_S = 3.0
BUFFER_BYTES = 1 << 16
BUSY = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Proxy:
    """In front of a server of HTTP: refuses, answers 503, loses answers, cuts connections.

    ``trouble`` is the share of connections that fare badly at once; others are cut some time.
    """

    def __init__(self, port: int, draw: random.Random) -> None:
        self._target = port
        self._draw = draw
        self.trouble = 0.0
        self.faults = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        started = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop
        )
        self._server = started.result()
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    def __exit__(self, *problem: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        others = [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        status = self._draw.random() / self.trouble if self.trouble else 1.0
        try:
            if status < 1.0:
                self.faults += 1
            if status < 0.3:
                return
            if status < 0.6:
                await reader.read(BUFFER_BYTES)
                writer.write(BUSY)
                await writer.drain()
                return
            answers = 0 if status < 1.0 else self._draw.randrange(5, 60)
            await self._relay(reader, writer, answers=answers)
        except OSError:
            pass  # either side may hang up
        finally:
            writer.close()

    async def _relay(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: int
    ) -> None:
        """Pass on; the piece of an answer after so many is lost and the connection with it."""
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._target)

        async def there() -> None:
            while piece := await reader.read(BUFFER_BYTES):
                to_server.write(piece)
                await to_server.drain()

        async def back() -> None:
            left = answers
            while piece := await from_server.read(BUFFER_BYTES):
                if self.trouble and left <= 0:
                    self.faults += 1
                    return
                left -= 1
                writer.write(piece)
                await writer.drain()

        ways = [asyncio.ensure_future(there()), asyncio.ensure_future(back())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            to_server.close()


class Receiver:
    """Takes webhooks and remembers idempotency keys; answers 500 or hangs now and then.

    A request that it answers badly may have been taken: its sender cannot know.
    """

    def __init__(self, draw: random.Random) -> None:
        self.taken: dict[str, tuple[str, bytes]] = {}  # by key: a digest of the request, its body
        self.repeats = 0
        self.changed: list[str] = []  # keys that came again with another body
        self.trouble = 0.0
        self.faults = 0
        self._draw = draw
        self._lock = threading.Lock()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                body = self.rfile.read(length)
                if len(body) == length:  # else its sender was killed before it was through
                    self._answer(outer._take(self.headers["Idempotency-Key"], body))

            def do_OPTIONS(self) -> None:
                self._answer(204)

            def _answer(self, status: int) -> None:
                with contextlib.suppress(OSError):
                    self.send_response(status)
                    self.send_header("Content-Length", "0")
                    self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        self._server = _QuietServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hook"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _take(self, key: str, body: bytes) -> int:
        with self._lock:
            status = self._draw.random() / self.trouble if self.trouble else 1.0
            self.faults += status < 1.0
            if 0.3 <= status < 0.6:
                return 500
            digest = hashlib.sha256(body).hexdigest()
            known = self.taken.setdefault(key, (digest, body))
            self.repeats += known[1] is not body
            if known[0] != digest:
                self.changed.append(key)
        if status < 0.02:
            time.sleep(HANG_S)
        return 204 if status >= 0.3 else 500


class _QuietServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A sender that was killed is no news."""
